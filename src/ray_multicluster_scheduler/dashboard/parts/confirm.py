"""Asks whether something is meant."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.heading import heading


async def confirmed(page: Page, question: str, *, about: str = "", do: str, colour: str = "negative") -> bool:
    """Return whether the visitor says yes. Escape is no.

    `about` says more, in lines; `do` is on the button that means yes.
    """
    with page.client.content, ui.dialog() as dialog, ui.card():
        dialog.props["aria-label"] = do
        heading(question).props("data-test=question")
        if about:
            ui.label(about).classes("lines")
        with ui.element("div").classes("line buttons"):
            no = ui.button(page.t("common.cancel"), on_click=lambda: dialog.submit("no"))
            no.props("flat no-caps autofocus data-test=cancel")
            yes = ui.button(do, color=colour, on_click=lambda: dialog.submit("yes"))
            yes.props("unelevated no-caps data-test=confirm")
    answer = await dialog
    dialog.delete()
    return bool(answer == "yes")
