"""A table of many rows in pages, which the browser builds from one list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

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
