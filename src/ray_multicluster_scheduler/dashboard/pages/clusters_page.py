"""Every cluster: its configuration as loaded, its nodes, and taking it out of service."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.cluster_view import ClusterTable, as_yaml, change_text
from ray_multicluster_scheduler.dashboard.dialogs import DrainDialog, heading
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.views import ClusterView

_GO_TO_OPENED = "document.querySelector('.cluster-section')?.closest('tbody').scrollIntoView()"


async def build(page: Page) -> None:
    """Build the page, and keep it up to date."""
    clusters = _Clusters(page)
    await page.follow(clusters.refresh)
    if "cluster" in page.query:
        ui.run_javascript(_GO_TO_OPENED)


class _Clusters:
    """The elements that change."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._dialog = DrainDialog(page, self.refresh) if page.visitor.may(Role.OPERATE) else None
        self._empty = ui.label(page.t("clusters.empty"))
        with ui.card() as self._card:
            self._table = ClusterTable(page, self._ask_to_drain, opened=page.query.get("cluster"))
        self._configuration = _Configuration(page) if page.visitor.may(Role.READ_ALL) else None
        if page.visitor.may(Role.ADMIN):
            button = ui.button(page.t("clusters.reload"), color=None, on_click=self._reload)
            button.props("outline no-caps icon=refresh data-test=reload").classes("cluster-button")

    async def refresh(self) -> None:
        """Read what there is, and change what has changed."""
        clusters = await self._page.read("clusters", lambda service: service.clusters())
        self._empty.set_visibility(not clusters)
        self._card.set_visibility(bool(clusters))
        self._table.show(clusters)

    def _ask_to_drain(self, cluster: ClusterView) -> None:
        if self._dialog is not None:
            self._dialog.ask(cluster)

    async def _reload(self) -> None:
        page = self._page
        change = await page.act(Role.ADMIN, lambda _: page.reload(page.visitor.caller), done="")
        if change is None:
            return
        page.say(change_text(page, change))
        if self._configuration is not None:
            await self._configuration.refresh()
        await page.now(self.refresh)


class _Configuration:
    """The configuration as loaded, read when somebody opens it."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._expansion = ui.expansion(page.t("clusters.configuration"), on_value_change=self.refresh)
        self._expansion.classes("cluster-configuration").props("data-test=configuration")
        with self._expansion:
            self._path = ui.label().classes("quiet")
            self._parts = ui.element("div").classes("full-width")

    async def refresh(self) -> None:
        """Show the configuration as it is now, if it is to be seen."""
        if not self._expansion.value:
            return
        loaded = await self._page.act(Role.READ_ALL, lambda service: service.configuration(), done="")
        if loaded is None:
            return
        self._path.set_text(self._page.t("clusters.loaded_from", path=loaded.path))
        parts = [*loaded.clusters.items(), (self._page.t("clusters.settings"), loaded.settings)]
        parts.append((self._page.t("clusters.server"), loaded.server))
        self._parts.clear()
        with self._parts:
            for title, values in parts:
                heading(title, level=3)
                ui.label(as_yaml(values)).classes("mono cluster-yaml")
