"""What runs inside the clusters, and the open Ray Client sessions."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.heading import heading
from ray_multicluster_scheduler.dashboard.parts.process_table import ProcessTable
from ray_multicluster_scheduler.dashboard.parts.session_table import SessionTable
from ray_multicluster_scheduler.service.caller import Role


async def build(page: Page) -> None:
    """Build the page. Everybody sees their own sessions; what runs besides is for those who see all."""
    with ui.card():
        heading(page.t("processes.sessions"))
        sessions = SessionTable(page)
    if page.visitor.may(Role.READ_ALL):
        with ui.card():
            heading(page.t("processes.processes"))
            ui.label(page.t("processes.about")).classes("quiet")
            table = ProcessTable(page)
        # Clusters may be slow or silent, so the page is there before they have answered.
        ui.timer(0, table.load, once=True)
    await page.follow(sessions.refresh)
