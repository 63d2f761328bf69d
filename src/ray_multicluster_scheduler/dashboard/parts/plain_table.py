"""A plain table whose rows change now and then; a row that stays the same is left alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from nicegui import ui

#: A text, or what builds the content of a cell.
Cell = str | Callable[[], object]
#: What a row shows, for telling whether it has changed, and its cells.
Row = tuple[Hashable, Sequence[Cell]]


class PlainTable(ui.element):
    """A table with headings. Without rows it says so in a sentence."""

    def __init__(self, headings: Sequence[str], *, empty: str) -> None:
        super().__init__("div")
        self.style("overflow-x: auto; width: 100%").props("tabindex=0")  # so that the keyboard can scroll it
        self._keys: list[Hashable] | None = None
        with self:
            with ui.element("table").classes("plain-table") as self._table:
                with ui.element("thead"), ui.element("tr"):
                    for heading in headings:
                        with ui.element("th").props("scope=col"):
                            ui.label(heading)
                self._body = ui.element("tbody")
            self._empty = ui.label(empty).classes("quiet")

    def show(self, rows: Sequence[Row]) -> None:
        """Show these rows."""
        keys = [key for key, _ in rows]
        if keys == self._keys:
            return
        self._keys = keys
        self._table.set_visibility(bool(rows))
        self._empty.set_visibility(not rows)
        self._body.clear()
        with self._body:
            for _, cells in rows:
                with ui.element("tr"):
                    for cell in cells:
                        with ui.element("td"):
                            if isinstance(cell, str):
                                ui.label(cell)
                            else:
                                cell()
