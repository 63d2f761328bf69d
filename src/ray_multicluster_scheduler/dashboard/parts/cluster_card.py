"""A cluster at a glance: health, versions, how full it is, what runs there, and how fast it answers."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from ray_multicluster_scheduler.dashboard.addresses import cluster_address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import StateChip, When, health_word
from ray_multicluster_scheduler.dashboard.parts.job_list_address import address
from ray_multicluster_scheduler.dashboard.parts.resource_bar import ResourceBar, shares
from ray_multicluster_scheduler.dashboard.parts.resource_text import resources_text
from ray_multicluster_scheduler.dashboard.parts.sparkline import Sparkline
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.states import LIVE, JobState
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.views import ClusterView

_LIVE = tuple(state for state in JobState if state in LIVE)


class ClusterCard(ui.card):
    """One card of the overview."""

    def __init__(self, page: Page, name: str) -> None:
        super().__init__()
        self._page = page
        self._bars: dict[str, ResourceBar] = {}
        with self:
            with ui.element("div").classes("line spread"):
                ui.link(name, cluster_address(name)).classes("raymc-subtitle")
                self._health = StateChip(page)
            with ui.element("div").classes("line") as self._trouble:
                self._why = ui.label()
                self._since = When()
            self._versions = ui.label().classes("quiet")
            self._resources = ui.element("div").style("display: grid; gap: .5rem; width: 100%")
            self._others = ui.label().classes("quiet")
            self._unknown = ui.label(page.t("overview.resources_unknown")).classes("quiet")
            with ui.element("div").classes("line spread"):
                self._jobs = ui.link("", address(JobQuery(cluster=name, states=_LIVE)))
                with ui.element("div").classes("line").style("width: auto; align-items: center"):
                    self._latency = ui.label().classes("quiet")
                    self._curve = Sparkline()

    def show(self, cluster: ClusterView, latencies: Sequence[float | None]) -> None:
        """Show how the cluster is now."""
        page = self._page
        self._health.show(health_word(cluster.health, drained=cluster.drained))
        self._show_trouble(cluster)
        versions = [
            f"Ray {cluster.ray_version}" if cluster.ray_version else "",
            f"Python {cluster.python_version}" if cluster.python_version else "",
            ", ".join(cluster.tags),
        ]
        self._versions.set_text(" · ".join(filter(None, versions)) or page.t("overview.versions_unknown"))
        self._show_bars(cluster)
        self._jobs.set_text(
            page.t("overview.live_jobs", jobs=cluster.live_jobs, most=cluster.max_running_jobs)
        )
        latency_s = cluster.latency_s if cluster.problem is None else None
        text = "" if latency_s is None else page.t("overview.latency", ms=f"{1000 * latency_s:.0f}")
        self._latency.set_text(text)
        self._curve.show(latencies, text or page.t("overview.no_answer"))

    def _show_trouble(self, cluster: ClusterView) -> None:
        """Say why a cluster gets no jobs, and since when."""
        page, why, since = self._page, "", None
        if cluster.health is not Health.HEALTHY:
            why = cluster.problem or page.t("overview.never_seen")
            since = cluster.observed_at
        elif cluster.drained:
            why = page.t("overview.drained", why=cluster.drain_reason or page.t("overview.no_reason"))
            since = cluster.drained_at
        elif cluster.throttle is not None:
            why = cluster.throttle_reason
        self._trouble.set_visibility(bool(why))
        self._why.set_text(why)
        self._since.show(since)

    def _show_bars(self, cluster: ClusterView) -> None:
        found = {share.name: share for share in shares(cluster)}
        for gone in self._bars.keys() - found.keys():
            self._bars.pop(gone).delete()
        for name, share in found.items():
            if name not in self._bars:
                with self._resources:
                    self._bars[name] = ResourceBar(self._page, name)
            self._bars[name].show(share)
        self._unknown.set_visibility(not found)
        others = resources_text(self._page.words, cluster.claimed_by_others)
        self._others.set_visibility(bool(others))
        self._others.set_text(self._page.t("clusters.others", claims=others))
