"""A plain table whose rows change now and then; a row that stays the same is left alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from nicegui import ui

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
