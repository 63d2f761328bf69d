"""Asks why a cluster is to get no new jobs, or whether it may get them again."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page, Refresh
from ray_multicluster_scheduler.dashboard.parts.heading import heading
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.views import ClusterView


class DrainDialog(ui.dialog):
    """One dialog for all clusters of a page."""

    def __init__(self, page: Page, after: Refresh) -> None:
        super().__init__()
        self._page, self._after = page, after
        self._cluster: ClusterView | None = None
        self.props["aria-label"] = page.t("clusters.drain_dialog")
        with self, ui.card().classes("cluster-dialog"):
            self._title = heading()
            self._what = ui.label()
            self._reason = ui.input(page.t("clusters.reason")).props("outlined dense data-test=drain-reason")
            self._reason.classes("full-width").on("keydown.enter", self._do)
            with ui.element("div").classes("line buttons"):
                cancel = ui.button(page.t("common.cancel"), color=None, on_click=self.close)
                cancel.props("flat no-caps").classes("cluster-button")
                self._go = ui.button(on_click=self._do).props("no-caps data-test=drain-go")

    def ask(self, cluster: ClusterView) -> None:
        """Open the dialog for a cluster as it is shown now."""
        page, kind = self._page, "undrain" if cluster.drained else "drain"
        self._cluster = cluster
        self._title.set_text(page.t(f"clusters.{kind}_title", cluster=cluster.name))
        self._what.set_text(page.t(f"clusters.{kind}_text"))
        self._go.set_text(page.t(f"clusters.{kind}"))
        self._reason.set_value("")
        self._reason.set_visibility(not cluster.drained)
        self.open()

    async def _do(self) -> None:
        if self._cluster is None:
            return
        name, drained, reason = self._cluster.name, not self._cluster.drained, self._reason.value.strip()
        self.close()
        done = self._page.t("clusters.drain_done" if drained else "clusters.undrain_done", cluster=name)
        await self._page.act(
            Role.OPERATE,
            lambda service: service.set_drained(name, drained=drained, reason=reason),
            done=done,
        )
        await self._page.now(self._after)
