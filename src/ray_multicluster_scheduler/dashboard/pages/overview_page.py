"""The first page: every cluster, the fleet as a whole, what waits and why, and what has failed last."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nicegui import ui

from ray_multicluster_scheduler.dashboard.addresses import job_address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import When
from ray_multicluster_scheduler.dashboard.parts.cluster_card import ClusterCard
from ray_multicluster_scheduler.dashboard.parts.heading import heading
from ray_multicluster_scheduler.dashboard.parts.job_list_address import address
from ray_multicluster_scheduler.dashboard.parts.plain_table import PlainTable, Row
from ray_multicluster_scheduler.dashboard.parts.resource_bar import SHOWN
from ray_multicluster_scheduler.dashboard.parts.resource_text import amount
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.views import ClusterView, JobView, WaitView

FAILURES = JobQuery(states=(JobState.FAILED,), limit=8)
QUEUED = JobQuery(states=(JobState.QUEUED,))
OPEN = tuple(state for state in JobState if state not in FINAL)


async def build(page: Page) -> None:
    """Build the page, and keep it up to date."""
    overview = _Overview(page)
    await page.follow(overview.refresh)


class _Overview:
    """The elements that change."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._cards: dict[str, ClusterCard] = {}
        with ui.card():
            self._figures = ui.element("div").classes("figures")
        self._numbers: dict[str, ui.label] = {}
        self._grid = ui.element("div").classes("grid")
        with ui.element("div").classes("grid grid-wide"):
            with ui.card():
                heading(page.t("overview.queue"))
                self._queue = PlainTable(
                    [page.t("overview.reason"), page.t("overview.jobs"), page.t("overview.oldest")],
                    empty=page.t("overview.queue_empty"),
                )
            with ui.card():
                heading(page.t("overview.failures"))
                headings = ("common.job", "common.cluster", "overview.when", "overview.why")
                self._failures = PlainTable(
                    [page.t(each) for each in headings], empty=page.t("overview.failures_empty")
                )

    async def refresh(self) -> None:
        """Read what there is, and change what has changed."""
        page = self._page
        clusters = await page.read("clusters", lambda service: service.clusters())
        counts = await page.read("counts", lambda service: service.counts(OPEN))
        self._show_fleet(clusters, counts)
        self._show_clusters(clusters)
        self._show_queue(await page.read("waits", lambda service: service.wait_reasons()))
        failures = await page.read(FAILURES, lambda service: service.list_jobs(FAILURES))
        self._show_failures(failures.jobs)

    def _show_fleet(self, clusters: Sequence[ClusterView], counts: dict[JobState, int]) -> None:
        healthy = sum(each.health is Health.HEALTHY for each in clusters)
        self._number("overview.clusters", f"{healthy} / {len(clusters)}")
        self._number("overview.running", str(sum(counts.values()) - counts.get(JobState.QUEUED, 0)))
        self._number("overview.queued", str(counts.get(JobState.QUEUED, 0)))
        for name in SHOWN:
            total = sum((each.total or {}).get(name, 0.0) for each in clusters)
            used = sum((each.used or {}).get(name, 0.0) for each in clusters)
            if total:
                self._number(f"resources.{name}", f"{amount(name, used)} / {amount(name, total)}")

    def _number(self, key: str, text: str) -> None:
        if key not in self._numbers:
            with self._figures, ui.element("div"):
                self._numbers[key] = ui.label().classes("figure-number")
                ui.label(self._page.t(key)).classes("quiet")
        self._numbers[key].set_text(text)

    def _show_clusters(self, clusters: Sequence[ClusterView]) -> None:
        for gone in self._cards.keys() - {each.name for each in clusters}:
            self._cards.pop(gone).delete()
        for cluster in clusters:
            if cluster.name not in self._cards:
                with self._grid:
                    self._cards[cluster.name] = ClusterCard(self._page, cluster.name)
            latencies = self._page.live.latencies.get(cluster.name, ())
            self._cards[cluster.name].show(cluster, tuple(latencies))

    def _show_queue(self, waits: Sequence[WaitView]) -> None:
        self._queue.show([self._wait_row(wait) for wait in sorted(waits, key=lambda wait: -wait.jobs)])

    def _wait_row(self, wait: WaitView) -> Row:
        reason = self._page.words.known(f"reasons.{wait.reason}", wait.reason)
        jobs = partial(ui.link, str(wait.jobs), address(QUEUED))
        return (wait.reason, wait.jobs, wait.oldest), (reason, jobs, partial(When, wait.oldest))

    def _show_failures(self, jobs: Sequence[JobView]) -> None:
        self._failures.show([_failure_row(job) for job in jobs])


def _failure_row(job: JobView) -> Row:
    cells = (partial(_job_link, job), job.cluster or "", partial(When, job.ended_at), job.message)
    return (job.submission_id, job.changed_at), cells


def _job_link(job: JobView) -> None:
    name = job.own_name or job.submission_id
    ui.link(name, job_address(job.submission_id)).classes("clip").props["title"] = name
