"""Everything about one cluster: why it gets jobs or not, its machines, and what waits inside Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from ray_multicluster_scheduler.cluster_health.diagnosis import Check
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import When
from ray_multicluster_scheduler.dashboard.parts.cluster_words import labels_text, web_address
from ray_multicluster_scheduler.dashboard.parts.heading import heading
from ray_multicluster_scheduler.dashboard.parts.job_list_address import address
from ray_multicluster_scheduler.dashboard.parts.plain_table import PlainTable, Row
from ray_multicluster_scheduler.dashboard.parts.resource_text import resources_text
from ray_multicluster_scheduler.dashboard.parts.wide_table import WideTable
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.views import ClusterView, NodeView

#: Called with the cluster as it is shown.
OnDrain = Callable[[ClusterView], None]
#: Nodes on one page of the table.
NODES = 20


class ClusterSection(ui.element):
    """All about one cluster."""

    def __init__(self, page: Page, name: str, on_drain: OnDrain) -> None:
        super().__init__("div")
        self.classes("stack cluster-section")
        self._page = page
        self._cluster: ClusterView | None = None
        self.props["data-test"] = f"cluster-{name}"
        with self:
            with ui.element("div").classes("line cluster-actions"):
                if page.visitor.may(Role.SUBMIT):
                    self._doctor_button(name)
                self._drain = self._drain_button(on_drain)
            self._problem = _Note()
            self._drained = _Note()
            self._throttle = _Note()
            self._others = _Note()
            self._facts = _Facts(page)
            self._links(name)
            columns = [page.t(f"clusters.doctor_{column}") for column in ("check", "verdict", "says")]
            self._checks = PlainTable(columns)
            self._checks.props("data-test=checks").set_visibility(False)
            heading(page.t("clusters.nodes"), level=3)
            self._nodes_unknown = ui.label(page.t("clusters.nodes_unknown")).classes("quiet")
            self._nodes = _nodes_table(page)
            heading(page.t("clusters.pending"), level=3)
            self._pending_unknown = ui.label(page.t("clusters.pending_unknown")).classes("quiet")
            headings = [page.t("clusters.resources"), page.t("clusters.times")]
            self._pending = PlainTable(headings, empty=page.t("clusters.pending_empty"))

    def _doctor_button(self, name: str) -> None:
        page = self._page

        async def run() -> None:
            button.props("loading disable")
            try:
                reports = await page.act(Role.SUBMIT, lambda service: service.run_doctor([name]), done="")
            finally:
                button.props(remove="loading disable")
            if reports is None or self.is_deleted:  # refused, or the visitor has left
                return
            for report in reports:
                self._checks.show([_check_row(page, check) for check in report.checks])

        button = ui.button(page.t("clusters.doctor"), color=None, on_click=run)
        button.props("outline dense no-caps data-test=doctor").classes("cluster-button")
        button.tooltip(page.t("clusters.doctor_about"))

    def _drain_button(self, on_drain: OnDrain) -> ui.button | None:
        if not self._page.visitor.may(Role.OPERATE):
            return None
        button = ui.button(color=None).props("outline dense no-caps data-test=drain")
        button.classes("cluster-button")
        button.on_click(lambda: None if self._cluster is None else on_drain(self._cluster))
        return button

    def _links(self, name: str) -> None:
        with ui.element("div").classes("line"):
            ui.link(self._page.t("clusters.jobs"), address(JobQuery(cluster=name)))
            ui.link(self._page.t("clusters.timeline"), "/timeline?" + urlencode({"cluster": name}))
            # Its target is set when it is known; a cluster may get another address by a new configuration.
            self._dashboard = ui.link(self._page.t("clusters.dashboard"), "", new_tab=True)
            self._dashboard.props("rel=noopener")

    def show(self, cluster: ClusterView) -> None:
        """Show how the cluster is now."""
        self._cluster, page = cluster, self._page
        if self._drain is not None:
            self._drain.set_text(page.t("clusters.undrain" if cluster.drained else "clusters.drain"))
        self._problem.show(cluster.problem or "", cluster.observed_at)
        why = cluster.drain_reason or page.t("clusters.no_reason")
        self._drained.show(page.t("clusters.drained", why=why) if cluster.drained else "", cluster.drained_at)
        self._throttle.show("" if cluster.throttle is None else self._throttled(cluster), None)
        self._others.show(self._claims_of_others(cluster), None)
        self._facts.show(cluster)
        address = web_address(cluster.dashboard)
        self._dashboard.set_visibility(address is not None)
        if self._dashboard.props.get("href") != (address or ""):
            self._dashboard.props["href"] = address or ""
        self._show_nodes(cluster)
        self._show_pending(cluster)

    def _throttled(self, cluster: ClusterView) -> str:
        return self._page.t("clusters.throttled", jobs=cluster.throttle, why=cluster.throttle_reason)

    def _claims_of_others(self, cluster: ClusterView) -> str:
        claims = resources_text(self._page.words, cluster.claimed_by_others)
        return self._page.t("clusters.others", claims=claims) if claims else ""

    def _show_nodes(self, cluster: ClusterView) -> None:
        rows = [_node_row(self._page, node) for node in cluster.nodes or ()]
        self._nodes_unknown.set_visibility(not rows)
        self._nodes.set_visibility(bool(rows))
        self._nodes.show(rows)

    def _show_pending(self, cluster: ClusterView) -> None:
        known = cluster.pending is not None
        self._pending_unknown.set_visibility(not known)
        self._pending.set_visibility(known)
        words, pending = self._page.words, cluster.pending or ()
        rows = [(resources_text(words, each.resources), str(each.count)) for each in pending]
        self._pending.show([(row, row) for row in rows])


class _Note(ui.element):
    """A sentence about trouble, and since when."""

    def __init__(self) -> None:
        super().__init__("div")
        self.classes("line cluster-note")
        with self:
            self._why, self._since = ui.label(), When()

    def show(self, text: str, since: float | None) -> None:
        self.set_visibility(bool(text))
        self._why.set_text(text)
        self._since.show(since)


class _Facts(ui.element):
    """What is known of a cluster, and what is configured, each in a few words."""

    def __init__(self, page: Page) -> None:
        super().__init__("dl")
        self.classes("cluster-facts")
        self._page = page
        self._texts: dict[str, ui.label] = {}
        with self:
            for name in ("ray", "python", "resources", "head", "dashboard_address"):
                self._fact(name)
            with self._term("seen"):
                self._seen = When()
                self._latency = ui.label().classes("quiet")
            for name in ("ours", "tags", "weight", "prefer"):
                self._fact(name)

    def _term(self, name: str) -> ui.element:
        with ui.element("div"):
            with ui.element("dt"):
                ui.label(self._page.t(f"clusters.{name}"))
            return ui.element("dd")

    def _fact(self, name: str) -> None:
        with self._term(name):
            self._texts[name] = ui.label()

    def show(self, cluster: ClusterView) -> None:
        page = self._page
        unknown, none = page.t("common.unknown"), page.t("common.none")
        total = unknown if cluster.total is None else resources_text(page.words, cluster.total) or none
        texts = {
            "ray": cluster.ray_version or unknown,
            "python": cluster.python_version or unknown,
            "resources": total,
            "head": cluster.head_address,
            "dashboard_address": cluster.dashboard,
            "ours": page.t("clusters.ours_of", jobs=cluster.live_jobs, most=cluster.max_running_jobs),
            "tags": ", ".join(cluster.tags) or none,
            "weight": f"{cluster.weight:g}",
            "prefer": page.t("clusters.yes" if cluster.prefer else "clusters.no"),
        }
        for name, text in texts.items():
            self._texts[name].set_text(text)
        self._seen.show(cluster.observed_at)
        answered = cluster.problem is None and cluster.latency_s is not None
        latency = f"{1000 * (cluster.latency_s or 0.0):.0f}"
        never = page.t("clusters.never") if cluster.observed_at is None else ""
        self._latency.set_text(page.t("clusters.latency", ms=latency) if answered else never)


def _check_row(page: Page, check: Check) -> Row:
    """Show one line of the doctor; its sentences are those of `raymc doctor`."""
    verdict = page.t(f"clusters.verdict_{check.verdict.value}")
    says = f"{check.says}\n→ {check.advice}" if check.advice else check.says
    return check, (check.name, verdict, lambda: ui.label(says).classes("lines"))


def _nodes_table(page: Page) -> WideTable:
    names = ("address", "alive", "head_node", "resources", "labels")
    headings = {name: page.t(f"clusters.{name}") for name in names}
    return WideTable(headings, label=page.t("clusters.nodes"), page_rows=NODES, kinds={"alive": "state"})


def _node_row(page: Page, node: NodeView) -> dict[str, Any]:
    return {
        "key": node.node_id,
        "address": node.address,
        "word": "HEALTHY" if node.alive else "UNHEALTHY",
        "alive": page.t("clusters.is_alive" if node.alive else "clusters.is_dead"),
        "head_node": page.t("clusters.yes") if node.is_head else "",
        "resources": resources_text(page.words, node.resources),
        "labels": labels_text(node.labels),
    }
