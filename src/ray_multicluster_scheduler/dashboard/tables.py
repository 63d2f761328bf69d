"""Tables: plain ones whose rows change now and then, and wide ones in pages, which the browser builds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from nicegui import ui

# A plain table whose rows change now and then; a row that stays the same is left alone.


#: A text, or what builds the content of a cell.
Cell = str | Callable[[], object]
#: What a row shows, for telling whether it has changed, and its cells.
Row = tuple[Hashable, Sequence[Cell]]
#: A narrow screen shows a table of more columns as a list: each row by itself, each value with its heading.
MOST_NARROW = 3


class PlainTable(ui.element):
    """A table with headings. Without rows it says so in a sentence, or is not there."""

    def __init__(self, headings: Sequence[str], *, empty: str = "") -> None:
        super().__init__("div")
        self.classes("plain-table").props("tabindex=0")  # so that the keyboard can scroll it
        if len(headings) > MOST_NARROW:
            self.classes("stacked")
        self._headings = headings
        self._keys: list[Hashable] | None = None
        with self:
            # A list on a narrow screen is still a table for who hears it: its roles are written out.
            with ui.element("table").props("role=table") as self._table:
                with _row(ui.element("thead")):
                    for heading in headings:
                        with ui.element("th").props("scope=col role=columnheader"):
                            ui.label(heading)
                self._body = ui.element("tbody").props("role=rowgroup")
            self._empty = ui.label(empty).classes("quiet") if empty else None

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows."""
        keys = [key for key, _ in rows]
        if keys == self._keys:
            return
        self._keys = keys
        self._table.set_visibility(bool(rows))
        if self._empty is None:
            self.set_visibility(bool(rows))
        else:
            self._empty.set_visibility(not rows)
        self._body.clear()
        for _, cells in rows:
            with _row(self._body):
                for heading, cell in zip(self._headings, cells, strict=True):
                    self._cell(heading, cell)

    def _cell(self, heading: str, cell: Cell) -> None:
        with ui.element("td").props("role=cell") as element:
            element.props["data-label"] = heading
            if not isinstance(cell, str):
                cell()
            elif cell:
                ui.label(cell)


def _row(part: ui.element) -> ui.element:
    """Add a row to the head or the body of a table."""
    with part.props("role=rowgroup"):
        return ui.element("tr").props("role=row")


# A table of many rows in pages, which the browser builds from one list.


#: How the browser fills a cell, by kind. Values are put in only by {{ }} and bound attributes, so they stay
#: text. On a narrow screen a value stands behind its heading.
_CELL = '<q-td :props="props" :data-label="props.col.label">%s</q-td>'
_KINDS = {
    "text": "{{ props.value }}",
    "state": '<span :class="`state state-${props.row.word}`">{{ props.value }}</span>',
    "moment": '<time :data-at="props.value" data-style="moment"></time>',
    "lasting": '<time v-if="props.value" :data-from="props.value" :data-to="props.row.to"></time>',
    "job": '<a :href="`/jobs/${encodeURIComponent(props.row.id)}`">{{ props.value }}</a>',
}


class WideTable(ui.table):
    """Columns by name with their headings; `kinds` names those that show more than a text."""

    def __init__(
        self, headings: Mapping[str, str], *, label: str, page_rows: int, kinds: Mapping[str, str]
    ) -> None:
        columns: list[dict[str, Any]] = [
            {"name": name, "label": heading, "field": name, "align": "left"}
            for name, heading in headings.items()
        ]
        super().__init__(columns=columns, rows=[], row_key="key", pagination=page_rows)
        self._page_rows = page_rows
        self.props("flat dense wrap-cells").classes("wide-table")
        self.props("tabindex=0 role=region")  # so that the keyboard can scroll it
        self.props["aria-label"] = label
        self.add_slot("body-cell", _CELL % _KINDS["text"])
        for name, kind in kinds.items():
            self.add_slot(f"body-cell-{name}", _CELL % _KINDS[kind])

    def show(self, rows: list[dict[str, Any]]) -> None:
        """Show these rows; each has a `key` of its own."""
        if rows != self.rows:
            self.rows = rows
            self.props["hide-pagination"] = len(rows) <= self._page_rows
