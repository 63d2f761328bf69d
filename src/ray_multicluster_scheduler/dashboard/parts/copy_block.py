"""A text to be taken away, with a button that copies it (`static/dashboard.js`)."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page


class CopyBlock(ui.element):
    """Shows a text as it is. `what` names it for those who cannot see it; `wrap` breaks long lines."""

    def __init__(self, page: Page, what: str, text: str = "", *, wrap: bool = False) -> None:
        super().__init__("div")
        self.classes("copy-block")
        with self:
            self._shown = ui.label(text).classes("copy-text mono").props("tabindex=0 role=region")
            self._shown.props["aria-label"] = what
            if wrap:
                self._shown.classes("copy-wrap")
            button = ui.button(page.t("common.copy"), icon="content_copy", color=None)
            button.classes("copy-button").props("flat dense no-caps")
            button.props["aria-label"] = f"{page.t('common.copy')}: {what}"
            button.props["data-copied"] = page.t("common.copied")

    def show(self, text: str) -> None:
        """Show another text."""
        self._shown.set_text(text)
