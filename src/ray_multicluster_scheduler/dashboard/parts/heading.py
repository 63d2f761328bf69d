"""Headings within a page."""

from __future__ import annotations

from nicegui import ui


def heading(text: str = "", *, level: int = 2) -> ui.label:
    """Return a heading; level 1 is the title of the page."""
    return ui.label(text).classes("raymc-subtitle").props(f"role=heading aria-level={level}")
