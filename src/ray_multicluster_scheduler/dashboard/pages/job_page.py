"""One job: all that is known of it, why it is where it is, its log, and what may be done about it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from http import HTTPStatus

from nicegui import ui

from ray_multicluster_scheduler.dashboard.frame import show_problem
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.attempt_history import AttemptsTable, Environment
from ray_multicluster_scheduler.dashboard.parts.chips import StateChip
from ray_multicluster_scheduler.dashboard.parts.copy_block import CopyBlock
from ray_multicluster_scheduler.dashboard.parts.event_list import JobEvents
from ray_multicluster_scheduler.dashboard.parts.heading import heading
from ray_multicluster_scheduler.dashboard.parts.job_actions import JobActions
from ray_multicluster_scheduler.dashboard.parts.job_facts import JobFacts
from ray_multicluster_scheduler.dashboard.parts.job_graph import JobGraph
from ray_multicluster_scheduler.dashboard.parts.job_list_address import PATH
from ray_multicluster_scheduler.dashboard.parts.job_relations import read_relations
from ray_multicluster_scheduler.dashboard.parts.job_rows import title_of
from ray_multicluster_scheduler.dashboard.parts.job_why import JobWhy
from ray_multicluster_scheduler.dashboard.parts.log_view import LogView
from ray_multicluster_scheduler.model.execution import RAY_CLIENT
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.views import AttemptView, Explanation, JobView

#: The least time between two looks at the whole queue, and at other jobs.
LOOK_S = 5.0


async def build(page: Page) -> None:
    """Build the page, and keep it up to date."""
    submission_id = page.path["submission_id"]
    job = await _read(page, submission_id)
    if job is None:
        page.client.status_code = HTTPStatus.NOT_FOUND
        show_problem(page, page.t("job.not_found", job=submission_id))
        ui.link(page.t("job.all_jobs"), PATH)
        return
    shown = _Job(page, submission_id, session=await _is_session(page, job))
    await page.follow(shown.refresh)


async def _read(page: Page, submission_id: str) -> JobView | None:
    found = await page.read(("job", submission_id), lambda service: service.get_many([submission_id]))
    return found.get(submission_id)


async def _is_session(page: Page, job: JobView) -> bool:
    """Tell whether it is a Ray Client session: its attempts say so, or, before there is one, the list."""
    name = job.submission_id
    if job.attempt:
        attempts = await page.ask(lambda service: service.attempts(name))
        return any(each.executor == RAY_CLIENT for each in attempts)
    sessions = await page.ask(lambda service: service.sessions())
    return any(each.submission_id == name for each in sessions)


class _Job:
    """The elements that change. What somebody looks for first is on top: the log, or why a job waits."""

    def __init__(self, page: Page, submission_id: str, *, session: bool) -> None:
        self._page = page
        self._id = submission_id
        self._session = session
        self._job: JobView | None = None
        self._attempts: Sequence[AttemptView] = ()
        self._looked_at = float("-inf")
        self._gone = ui.label(page.t("job.gone")).classes("raymc-banner").props("role=alert")
        self._gone.set_visibility(False)
        self._build_head()
        with ui.element("div").classes("job-cards") as self._cards:
            with ui.card().props("data-test=job-log"):
                heading(page.t("log.log"))
                self._log = None if session else LogView(page, submission_id)
                if session:
                    ui.label(page.t("log.session")).classes("quiet")
            with ui.card().props("data-test=job-facts"):
                self._facts = JobFacts(page)
            with ui.card() as self._relations:
                heading(page.t("job.relations"))
                self._graph = JobGraph(page)
            self._build_history()
            with ui.card().props("data-test=job-decision") as self._decision:
                self._why_title = heading()
                self._why = JobWhy(page)
        self._relations.set_visibility(False)
        self._decision.set_visibility(False)

    def _build_head(self) -> None:
        page = self._page
        assert page.head is not None
        with page.head:
            back = ui.link(page.t("job.back"), PATH).classes("back-to-list").props("data-test=back")
            back.move(target_index=0)
            self._state = StateChip(page)
            self._state.props("data-test=job-state")
            ui.space()
            self._actions = JobActions(page, self._id)
        with ui.card():
            self._message = ui.label().classes("lines").props("data-test=job-message")
            self._warnings = ui.label().classes("job-warning lines").props("role=status")
            self._command = CopyBlock(page, page.t("job.command"), wrap=True)
            self._command.props("data-test=job-command")

    def _build_history(self) -> None:
        page = self._page
        with ui.card():
            heading(page.t("job.attempts"))
            self._table = AttemptsTable(page)
        with ui.element("div").classes("grid grid-wide"):
            with ui.card():
                heading(page.t("job.events"))
                self._events = JobEvents(page, self._id)
            with ui.card():
                heading(page.t("job.environment"))
                self._environment = Environment(page)

    async def refresh(self) -> None:
        """Read the job, and the rest where it may have changed. No cluster is asked."""
        job = await _read(self._page, self._id)
        self._gone.set_visibility(job is None)
        if job is None:
            self._actions.hide()
            return
        changed = job != self._job
        if changed:
            self._job = job
            name = self._id
            self._attempts = await self._page.read(("attempts", name), lambda service: service.attempts(name))
            self._show(job)
            await self._events.refresh(said=job.message)
        if changed or time.monotonic() - self._looked_at >= LOOK_S:
            await self._look(job, changed=changed)

    def _show(self, job: JobView) -> None:
        self._page.set_title(title_of(job))
        self._state.show(job.state.value)
        self._message.set_text(job.message)
        waits = job.state is JobState.QUEUED and not job.attempt  # the card below says why
        self._message.set_visibility(bool(job.message) and not waits)
        self._warnings.set_text("\n".join(job.warnings))
        self._warnings.set_visibility(bool(job.warnings))
        self._command.show(job.entrypoint)
        self._facts.show(job)
        self._actions.show(job, session=self._session)
        self._table.show_attempts(self._attempts, said=job.message)
        self._environment.show(job, self._attempts)
        if self._log is not None:
            self._log.show(job, self._attempts)

    async def _look(self, job: JobView, *, changed: bool) -> None:
        """Read what depends on other jobs: seldom, because it is more than one row."""
        page, name = self._page, self._id
        self._looked_at = time.monotonic()
        if changed or job.state is JobState.QUEUED:
            told = await page.read(("explain", name), lambda service: service.explain(name))
            self._show_why(told, job)
        relations = await page.read(("relations", name), lambda service: read_relations(service, job))
        self._relations.set_visibility(not relations.empty)
        if not relations.empty:
            self._graph.show(job, relations)

    def _show_why(self, told: Explanation, job: JobView) -> None:
        """Show why the job waits on top of all; why it went to its cluster at the end."""
        waits = job.state is JobState.QUEUED
        self._why_title.set_text(self._page.t("job.why_it_waits" if waits else "job.why_there"))
        self._why.show(told, said=job.message)
        self._decision.set_visibility(not self._why.empty)
        if (self._cards.default_slot.children[0] is self._decision) != waits:
            self._decision.move(target_index=0 if waits else -1)
