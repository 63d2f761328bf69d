"""Asks whether something is meant that cannot be undone."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page


async def confirmed(page: Page, question: str, *, do: str) -> bool:
    """Return whether the visitor says yes; `do` names what is done then. Escape is no."""
    with page.client.content, ui.dialog() as dialog, ui.card():
        dialog.props["aria-label"] = do
        ui.label(question)
        with ui.element("div").classes("line").style("justify-content: flex-end"):
            no = ui.button(page.t("common.cancel"), on_click=lambda: dialog.submit("no"))
            no.props("flat no-caps autofocus")
            yes = ui.button(do, color="negative", on_click=lambda: dialog.submit("yes"))
            yes.props("unelevated no-caps data-test=confirm")
    answer = await dialog
    dialog.delete()
    return bool(answer == "yes")
