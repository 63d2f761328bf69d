"""The first page: every cluster, the fleet as a whole, what waits and why, and what has failed last."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from nicegui import ui

from ray_multicluster_scheduler.dashboard.addresses import job_address
from ray_multicluster_scheduler.dashboard.chips import SHOWN, When, number, shares
from ray_multicluster_scheduler.dashboard.cluster_view import ClusterCard
from ray_multicluster_scheduler.dashboard.dialogs import heading
from ray_multicluster_scheduler.dashboard.frame import show_problem
from ray_multicluster_scheduler.dashboard.job_list_address import (
    ALWAYS,
    Range,
    TimeRange,
    address,
    parse_range,
)
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.pages.jobs_page import exit_code_of, title_of
from ray_multicluster_scheduler.dashboard.tables import PlainTable, Row
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.views import ClusterView, JobPage, JobView, WaitView

FAILURES = JobQuery(states=(JobState.FAILED,), limit=8)
QUEUED = JobQuery(states=(JobState.QUEUED,))
OPEN = tuple(state for state in JobState if state not in FINAL)
ON_CLUSTERS = JobQuery(states=tuple(state for state in OPEN if state is not JobState.QUEUED))
#: The cards of more clusters than this stand below what waits and what has failed.
MOST_ABOVE = 6
#: Failures are counted this far back, and so often if none is seen to come: all that have failed are read.
DAY_S = 86_400
COUNT_S = 30.0


async def build(page: Page) -> None:
    """Build the page, and keep it up to date."""
    try:
        chosen = parse_range(page.query)
    except InvalidRequest as problem:
        page.client.status_code = HTTPStatus.BAD_REQUEST
        show_problem(page, str(problem))
        return
    overview = _Overview(page, chosen)
    await page.follow(overview.refresh)


class _Overview:
    """The elements that change."""

    def __init__(self, page: Page, chosen: Range) -> None:
        self._page = page
        self._cards: dict[str, ClusterCard] = {}
        self._failures_of: JobQuery = FAILURES
        self._failed_last: tuple[str, ...] | None = None
        self._counted_at = float("-inf")
        with ui.card():
            self._figures = ui.element("div").classes("figures")
        self._numbers: dict[str, _Figure] = {}
        self._grid = ui.element("div").classes("grid")
        with ui.element("div").classes("grid grid-wide grid-top"):
            with ui.card():
                heading(page.t("overview.queue"))
                self._queue = PlainTable(
                    [page.t("overview.reason"), page.t("overview.jobs"), page.t("overview.oldest")],
                    empty=page.t("overview.queue_empty"),
                )
            with ui.card().props("data-test=failures"):
                with ui.element("div").classes("line spread centred"):
                    heading(page.t("overview.failures"))
                    self._times = TimeRange(page, self._choose_times, in_address=True)
                headings = ("common.job", "common.cluster", "overview.when", "overview.why")
                self._failures = PlainTable([page.t(each) for each in headings])
                self._no_failures = ui.label().classes("quiet")
                self._all_failures = ui.link(page.t("overview.failures_all"), "")
        self._below = ui.element("div")
        self._look_at(chosen)

    async def refresh(self) -> None:
        """Read what there is, and change what has changed."""
        page = self._page
        clusters = await page.read("clusters", lambda service: service.clusters())
        counts = await page.read("counts", lambda service: service.counts(OPEN))
        self._show_fleet(clusters, counts)
        self._show_clusters(clusters)
        self._show_queue(await page.read("waits", lambda service: service.wait_reasons()))
        asked = self._failures_of
        failures = await page.read(asked, lambda service: service.list_jobs(asked))
        if asked is self._failures_of:
            self._show_failures(failures)
        await self._count_failures(failures.jobs)

    async def _count_failures(self, seen: Sequence[JobView]) -> None:
        """Count those of the last day: when another one is seen, and now and then."""
        last, page = tuple(job.submission_id for job in seen), self._page
        if last == self._failed_last and time.monotonic() - self._counted_at < COUNT_S:
            return
        self._failed_last, self._counted_at = last, time.monotonic()
        since = time.time() // 60 * 60 - DAY_S
        counts = await page.read(
            ("failed", since), lambda service: service.counts([JobState.FAILED], changed_since=since)
        )
        there = address(replace(FAILURES, changed_since=since))
        self._number("overview.failed", str(counts.get(JobState.FAILED, 0)), there)

    async def _choose_times(self, chosen: Range) -> None:
        self._look_at(chosen)
        await self._page.now(self.refresh)

    def _look_at(self, chosen: Range) -> None:
        """Show the failures of this time from now on."""
        since, until = chosen
        self._failures_of = replace(FAILURES, changed_since=since, changed_until=until)
        self._times.show(since, until)
        self._all_failures.props["href"] = address(self._failures_of)
        if self._page.visitor.caller.only is None:
            key = "overview.failures_empty" if chosen == ALWAYS else "overview.failures_empty_then"
        else:
            key = "overview.failures_empty_own" if chosen == ALWAYS else "overview.failures_empty_own_then"
        self._no_failures.set_text(self._page.t(key))

    def _show_fleet(self, clusters: Sequence[ClusterView], counts: dict[JobState, int]) -> None:
        healthy = sum(each.health is Health.HEALTHY for each in clusters)
        self._number("overview.clusters", f"{healthy} / {len(clusters)}", "/clusters")
        running = sum(counts.values()) - counts.get(JobState.QUEUED, 0)
        self._number("overview.running", str(running), address(ON_CLUSTERS))
        self._number("overview.queued", str(counts.get(JobState.QUEUED, 0)), address(QUEUED))
        self._number("overview.failed", None, address(FAILURES))  # its place; it is counted later
        for name in SHOWN:
            there = [share for each in clusters for share in shares(each) if share.name == name]
            total, used = sum(each.total for each in there), sum(each.used for each in there)
            reserved = sum(each.reserved for each in there)
            if total:
                parts = {"used": number(name, used), "reserved": number(name, reserved)}
                about = self._page.t("overview.of_it", **parts) if reserved else ""
                text = f"{number(name, used + reserved)} / {number(name, total)}"
                self._number(f"resources.{name}_bar", text, "/clusters", about=about)

    def _number(self, key: str, text: str | None, target: str, *, about: str = "") -> None:
        if key not in self._numbers:
            with self._figures:
                self._numbers[key] = _Figure(self._page.t(key), key)
        if text is not None:
            self._numbers[key].show(text, target, about)

    def _show_clusters(self, clusters: Sequence[ClusterView]) -> None:
        for gone in self._cards.keys() - {each.name for each in clusters}:
            self._cards.pop(gone).delete()
        for cluster in clusters:
            if cluster.name not in self._cards:
                with self._grid:
                    self._cards[cluster.name] = ClusterCard(self._page, cluster.name)
            latencies = self._page.live.latencies.get(cluster.name, ())
            self._cards[cluster.name].show(cluster, tuple(latencies))
        if len(clusters) > MOST_ABOVE and self._grid not in self._below.default_slot.children:
            self._grid.move(self._below)

    def _show_queue(self, waits: Sequence[WaitView]) -> None:
        self._queue.show([self._wait_row(wait) for wait in sorted(waits, key=lambda wait: -wait.jobs)])

    def _wait_row(self, wait: WaitView) -> Row:
        reason = self._page.words.known(f"reasons.{wait.reason}", wait.reason)
        jobs = partial(ui.link, str(wait.jobs), address(replace(QUEUED, wait_reason=wait.reason)))
        return (wait.reason, wait.jobs, wait.oldest), (reason, jobs, partial(When, wait.oldest))

    def _show_failures(self, found: JobPage) -> None:
        self._failures.show([self._failure_row(job) for job in found.jobs])
        self._no_failures.set_visibility(not found.jobs)
        self._all_failures.set_visibility(found.next_cursor is not None)

    def _failure_row(self, job: JobView) -> Row:
        code = exit_code_of(job)
        why = job.message if code is None else self._page.t("jobs.exit_code", n=code)
        cells = (
            partial(_job_link, job),
            job.cluster or "",
            partial(When, job.ended_at),
            partial(_clipped, why, job.message),
        )
        return (job.submission_id, job.changed_at), cells


class _Figure(ui.element):
    """A number with what it counts, which leads to what was counted."""

    def __init__(self, label: str, key: str) -> None:
        super().__init__("div")
        with self:
            self._number = ui.link("–", "").classes("figure-number").props(f"data-test={key}")
            ui.label(label).classes("quiet")
            self._about = ui.label().classes("quiet")
        self._about.set_visibility(False)

    def show(self, text: str, target: str, about: str) -> None:
        self._number.set_text(text)
        self._number.props["href"] = target
        self._about.set_text(about)
        self._about.set_visibility(bool(about))


def _clipped(text: str, whole: str) -> None:
    ui.label(text).classes("two-lines").props["title"] = whole


def _job_link(job: JobView) -> None:
    name = title_of(job)
    ui.link(name, job_address(job.submission_id)).classes("clip").props["title"] = name
