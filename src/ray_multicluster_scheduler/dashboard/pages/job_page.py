"""One job: all that is known of it, why it is where it is, its log, and what may be done about it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from urllib.parse import quote

from nicegui import ui

from ray_multicluster_scheduler.client.result import bytes_of
from ray_multicluster_scheduler.dashboard.addresses import cluster_address, job_address
from ray_multicluster_scheduler.dashboard.chips import Lasting, StateChip, When, resources_text
from ray_multicluster_scheduler.dashboard.decision_view import (
    EnvironmentTable,
    Refusals,
    Scores,
    environment_rows,
)
from ray_multicluster_scheduler.dashboard.dialogs import CopyBlock, confirmed, heading
from ray_multicluster_scheduler.dashboard.frame import show_problem
from ray_multicluster_scheduler.dashboard.job_list_address import PATH, address
from ray_multicluster_scheduler.dashboard.job_relations import JobGraph, read_relations
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.pages.jobs_page import RETRIED, title_of
from ray_multicluster_scheduler.dashboard.tables import PlainTable, Row
from ray_multicluster_scheduler.errors import NoResult
from ray_multicluster_scheduler.model.job import JobEvent
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS
from ray_multicluster_scheduler.model.result import ResultKind
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import EVENTS, JobQuery
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import AttemptView, Explanation, JobView, ResultView

# On which clusters a job was tried, and the environment that it got there.


class AttemptsTable(PlainTable):
    """One row for each placement."""

    def __init__(self, page: Page) -> None:
        names = ("number", "cluster", "placed", "started", "lasting", "outcome", "reason")
        super().__init__([page.t(f"job.{name}") for name in names], empty=page.t("job.no_attempts"))
        self._page = page
        self.props("data-test=job-attempts").classes("by-word")

    def show_attempts(self, attempts: Sequence[AttemptView], *, said: str) -> None:
        """Show these, the last one first. A reason that the page says already is left out."""
        self.show([self._row(each, said) for each in reversed(attempts)])

    def _row(self, each: AttemptView, said: str) -> Row:
        reason = "–" if each.reason == said else each.reason
        outcome = each.outcome and self._page.words.known(f"outcomes.{each.outcome}", each.outcome)
        cells = (
            str(each.number),
            partial(ui.link, each.cluster, cluster_address(each.cluster)),
            partial(When, each.placed_at, style="moment"),
            partial(When, each.started_at, style="clock") if each.started_at else "–",
            partial(Lasting, each.started_at, each.ended_at) if each.started_at else "–",
            outcome or self._page.t("job.lives"),
            partial(_lines, reason),
        )
        return (each.number, each.started_at, each.ended_at, each.outcome, reason), cells


class Environment(ui.element):
    """The composed environment of one attempt, the last one by default, with the origin of each value."""

    def __init__(self, page: Page) -> None:
        super().__init__("div")
        self.classes("stack")
        self._page = page
        self._job: JobView | None = None
        self._attempts: Sequence[AttemptView] = ()
        with self:
            self._about = ui.label().classes("quiet")
            self._choice = ui.select({}, label=page.t("job.attempt"), on_change=self._show)
            self._choice.props("dense outlined options-dense data-test=job-environment-of")
            self._choice.style("min-width: 12rem")
            self._table = EnvironmentTable(page, empty=page.t("job.environment_empty"))

    def show(self, job: JobView, attempts: Sequence[AttemptView]) -> None:
        """Show the environment of the chosen attempt; before there is one, that of the job itself."""
        self._job = job
        newest = self._attempts[-1].number if self._attempts else None
        chosen = self._choice.value
        self._attempts = attempts
        options = {each.number: f"{each.number} · {each.cluster}" for each in reversed(attempts)}
        if options != self._choice.options:
            keep = chosen if chosen in options and chosen != newest else next(iter(options), None)
            self._choice.set_options(options, value=keep)
        self._choice.set_visibility(len(attempts) > 1)
        self._show()

    def _show(self) -> None:
        page, job = self._page, self._job
        if job is None:
            return
        attempt = next((each for each in self._attempts if each.number == self._choice.value), None)
        if attempt is None or not attempt.entrypoint:  # it was not sent yet
            self._about.set_text(page.t("job.environment_own"))
            own = {option: "job" for option, _, _ in environment_rows(job.runtime_env, {})}
            self._table.show_environment(job.runtime_env, own)
        else:
            text = page.t("job.environment_of", attempt=attempt.number, cluster=attempt.cluster)
            self._about.set_text(text)
            self._table.show_environment(attempt.runtime_env, attempt.origins)


def _lines(text: str) -> None:
    ui.label(text).classes("lines")


# What has happened to a job, the newest first.


#: How many moves are shown.
SHOWN = 100


class JobEvents(ui.element):
    """A list of moves. It reads only what came after what it has."""

    def __init__(self, page: Page, submission_id: str) -> None:
        super().__init__("div")
        self.classes("stack")
        self._page = page
        self._id = submission_id
        self._last = 0
        self._rows: list[tuple[ui.element, ui.label]] = []
        with self:
            self._list = ui.element("ol").classes("moves").props("data-test=job-events")
            self._more = ui.label(page.t("job.events_more", shown=SHOWN)).classes("quiet")
        self._more.set_visibility(False)

    async def refresh(self, *, said: str) -> None:
        """Read what is new, and put it on top. The newest reason is left out if the page says it already."""
        while True:
            fresh = await self._read(self._last)
            for event in fresh:
                self._add(event)
            if len(fresh) < EVENTS:
                break
        for _, reason in self._rows[-len(fresh) - 1 :]:
            reason.set_visibility(reason is not self._rows[-1][1] or reason.text != said)

    async def _read(self, after: int) -> Sequence[JobEvent]:
        name = self._id
        return await self._page.read(
            ("events", name, after), lambda service: service.events(name, after=after)
        )

    def _add(self, event: JobEvent) -> None:
        page = self._page
        self._last = event.id
        with self._list, ui.element("li") as row:
            with ui.element("div").classes("line"):
                When(event.at, style="moment").classes("quiet")
                with ui.element("div").classes("move"):
                    if event.old is not None:
                        StateChip(page).show(event.old.value)
                        ui.label("→")
                    StateChip(page).show(event.new.value)
                if event.cluster is not None:
                    ui.label(event.cluster)
            reason = ui.label(event.reason).classes("lines")
        row.move(self._list, 0)
        self._rows.append((row, reason))
        if len(self._rows) > SHOWN:
            self._rows.pop(0)[0].delete()
            self._more.set_visibility(True)


# What may be done about a job: stop, run again, submit a similar one, delete.


def actions_of(job: JobView) -> frozenset[str]:
    """Return what makes sense in the state of a job."""
    found = {"delete"} if job.final else {"stop"}
    if job.repeatable:
        found |= {"clone"}
        if job.state in RETRIED:
            found |= {"retry"}
    return frozenset(found)


class JobActions(ui.element):
    """The buttons. Whoever may not use them sees none."""

    def __init__(self, page: Page, submission_id: str) -> None:
        super().__init__("div")
        self.classes("line actions")
        self._page = page
        self._id = submission_id
        self._job: JobView | None = None
        self._buttons: dict[str, ui.element] = {}
        if not page.visitor.may(Role.SUBMIT):
            return
        with self:
            self._button("stop", "stop", self._stop).classes("danger")
            self._button("retry", "replay", self._retry)
            clone = self._button("clone", "content_copy")
            clone.props["href"] = f"/submit?from={quote(submission_id, safe='')}"
            self._button("delete", "delete", self._delete).classes("danger")

    def show(self, job: JobView) -> None:
        """Show what may be done now."""
        self._job = job
        sensible = actions_of(job)
        for name, button in self._buttons.items():
            button.set_visibility(name in sensible)
        stop = self._buttons.get("stop")
        if isinstance(stop, ui.button):
            stop.set_text(self._page.t("job.stopping" if job.stopping else "job.stop"))
            stop.set_enabled(not job.stopping)

    def hide(self) -> None:
        """Show nothing: the job is gone."""
        self.set_visibility(False)

    def _button(self, name: str, icon: str, action: object = None) -> ui.button:
        button = ui.button(self._page.t(f"job.{name}"), icon=icon, color=None)
        button.props(f"outline no-caps dense data-test=job-{name}")
        if callable(action):
            button.on_click(action)
        self._buttons[name] = button
        return button

    async def _stop(self) -> None:
        page, job = self._page, self._job
        what = "children" if job is not None and job.stop_children else "means"
        if await self._confirmed("stop", page.t(f"job.stop_{what}")):
            await page.act(
                Role.SUBMIT, lambda service: service.stop([self._id]), done=page.t("job.stop_asked")
            )

    async def _retry(self) -> None:
        page = self._page
        jobs = await page.act(Role.SUBMIT, lambda service: service.retry([self._id]), done="")
        if jobs:
            with page.client:
                ui.navigate.to(job_address(jobs[0].submission_id))

    async def _delete(self) -> None:
        page = self._page
        if not await self._confirmed("delete", page.t("job.delete_means")):
            return

        def delete(service: LocalService) -> bool:
            service.delete([self._id])
            return True

        if await page.act(Role.SUBMIT, delete, done=""):
            with page.client:
                ui.navigate.to("/jobs")

    async def _confirmed(self, name: str, about: str) -> bool:
        page = self._page
        question, do = page.t(f"job.{name}_sure"), page.t(f"job.{name}")
        return await confirmed(page, question, about=f"{self._id}\n{about}", do=do)


# What is known of a job, as a list of names and values.


#: Options that have a place of their own on the page.
_SHOWN = frozenset({"tags", "priority", "depends_on", "group", "parent"})
_TIMES = ("accepted", "placed", "started", "ended")


def options_text(job: JobView) -> str:
    """Return the other options of a job, one in each line, as far as they are not the default."""
    given = {each.name: getattr(job, each.name) for each in JOB_OPTIONS if each.name not in _SHOWN}
    defaults = {each.name: each.default for each in JOB_OPTIONS}
    return "\n".join(f"{name}: {value}" for name, value in given.items() if value != defaults[name])


class JobFacts(ui.element):
    """A list of names and values. A value that a job does not have is left out."""

    def __init__(self, page: Page) -> None:
        super().__init__("dl")
        self.classes("facts")
        self._page = page
        self._rows: dict[str, ui.element] = {}
        self._texts: dict[str, ui.label] = {}
        self._links: dict[str, ui.link] = {}
        self._times: dict[str, When] = {}
        with self:
            self._add_text("id", "mono")
            self._add_text("user")
            self._add_link("cluster")
            for name in _TIMES:
                with self._row(name):
                    self._times[name] = When(style="moment")
                    if name == "ended":
                        self._unreported = ui.label(page.t("job.end_unreported")).classes("quiet")
            with self._row("lasting"):
                self._lasting = Lasting()
            self._add_text("exit_code")
            self._add_text("error_type")
            self._add_text("claim")
            self._add_text("priority")
            self._add_link("group")
            self._add_text("tags")
            self._add_text("avoid")
            self._add_text("metadata", "mono lines")
            self._add_text("options", "mono lines")

    def show(self, job: JobView) -> None:
        """Show how it is now."""
        page = self._page
        self._put("id", job.submission_id)
        self._put("user", job.user)
        self._put_link("cluster", job.cluster, cluster_address(job.cluster or ""))
        self._put_times(job)
        self._put("exit_code", "" if job.exit_code is None else str(job.exit_code))
        kind = job.error_type or ""
        self._put("error_type", page.words.known(f"error_types.{kind}", kind))
        self._texts["error_type"].props["title"] = kind
        self._put("claim", resources_text(page.words, job.resource_requirements) or page.t("common.none"))
        self._put("priority", str(job.priority))
        self._put_link("group", job.group, address(JobQuery(group=job.group)))
        self._put("tags", ", ".join(job.tags))
        self._put("avoid", ", ".join(job.avoid))
        self._put("metadata", "\n".join(f"{name}: {value}" for name, value in job.metadata.items()))
        self._put("options", options_text(job))

    def _put_times(self, job: JobView) -> None:
        for name in _TIMES:
            at: float | None = getattr(job, f"{name}_at")
            self._times[name].show(at)
            self._rows[name].set_visibility(at is not None)
        self._unreported.set_visibility(job.end_unreported)
        self._rows["lasting"].set_visibility(job.started_at is not None)
        self._lasting.show(job.started_at, job.ended_at)

    def _put(self, name: str, text: str) -> None:
        self._texts[name].set_text(text)
        self._rows[name].set_visibility(bool(text))

    def _put_link(self, name: str, text: str | None, address: str) -> None:
        link = self._links[name]
        if link.text != (text or ""):
            link.set_text(text or "")
            link._props["href"] = address
            link.update()
        self._rows[name].set_visibility(text is not None)

    def _row(self, name: str) -> ui.element:
        with ui.element("div") as row:
            with ui.element("dt"):
                ui.label(self._page.t(f"job.{name}"))
            value = ui.element("dd").props(f"data-test=job-{name}")
        self._rows[name] = row
        return value

    def _add_text(self, name: str, classes: str = "") -> None:
        with self._row(name):
            self._texts[name] = ui.label().classes(classes)

    def _add_link(self, name: str) -> None:
        with self._row(name):
            self._links[name] = ui.link("", "")


# Why a job is where it is: each cluster's score or refusal, and what would let the job start.


class JobWhy(ui.element):
    """The words of the planner."""

    def __init__(self, page: Page) -> None:
        super().__init__("div")
        self.classes("stack")
        self._page = page
        self._shown: Explanation | None = None
        with self:
            self._sentence = ui.label().classes("lines").props("data-test=job-why")
            self._place = ui.label().classes("quiet").props("data-test=job-position")
            self._suggested = ui.label(page.t("job.suggestions")).classes("quiet")
            self._suggestions = ui.element("ul").classes("suggestions")
            self._about = ui.label().classes("quiet")
            self._scores = Scores(page)
            self._refusals = Refusals(page)

    @property
    def empty(self) -> bool:
        """Tell whether there is nothing to see."""
        shown = self._shown
        return shown is None or not (self._sentence.visible or shown.suggestions or shown.decision)

    def show(self, told: Explanation, *, said: str) -> None:
        """Show an explanation; its sentence is left out if the page says it already."""
        self._sentence.set_visibility(told.why != said)
        if told == self._shown:
            return
        self._shown = told
        page, decision = self._page, told.decision
        self._sentence.set_text(told.why)
        self._place.set_text(self._place_text(told))
        self._place.set_visibility(bool(self._place.text))
        self._suggested.set_visibility(bool(told.suggestions))
        self._suggestions.clear()
        with self._suggestions:
            for suggestion in told.suggestions:
                with ui.element("li"):
                    ui.label(suggestion)
        self._about.set_text(page.t("job.why_then", attempt=told.attempt) if told.attempt else "")
        self._about.set_visibility(bool(told.attempt and decision and told.position is None))
        self._scores.show_decision(decision)
        self._refusals.show_decision(decision)

    def _place_text(self, told: Explanation) -> str:
        page, decision = self._page, told.decision
        parts = []
        if told.position is not None:
            parts.append(page.t("job.position", position=told.position))
        if decision is not None and decision.reserved_on is not None:
            parts.append(page.t("job.reserved_on", cluster=decision.reserved_on))
        return " ".join(parts)


# The log of a job, which the browser reads and shows (`log_view.js`).


#: Words of the component; those of its states are named as these are.
_TEXTS = (
    "log",
    "attempt",
    "all",
    "search",
    "previous",
    "next",
    "nothing_found",
    "follow",
    "wrap",
    "download",
    "dropped",
    "whole",
    "reading",
    "following",
    "ended",
    "ended_empty",
    "one",
    "none",
    "lost",
)


class LogView(ui.element, component="log_view.js", esm={"raymc-log-text": "log_text"}):
    """Follows the log over all attempts, or shows that of one."""

    def __init__(self, page: Page, submission_id: str) -> None:
        super().__init__()
        self._page = page
        self._props["submission-id"] = submission_id
        self._props["texts"] = {name: page.t(f"log.{name}") for name in _TEXTS}
        self._props["attempts"] = []

    def show(self, job: JobView, attempts: Sequence[AttemptView]) -> None:
        """Tell the browser which attempts there are, and why nothing may come now."""
        told = {
            "attempts": [{"number": each.number, "cluster": each.cluster} for each in attempts],
            "ended": job.final,
            "note": self._note(job),
            "blank": self._page.t("log.not_started" if job.started_at is None else "log.no_output"),
        }
        if any(self._props.get(name) != value for name, value in told.items()):
            for name, value in told.items():
                self._props[name] = value
            self.update()

    def _note(self, job: JobView) -> str:
        if job.state is JobState.UNREACHABLE:
            return self._page.t("log.unreachable", cluster=job.cluster)
        return ""


# What a job has left as its result.


#: Of a longer text, the beginning is shown; all of it can be downloaded.
RESULT_CHARS = 20_000


class JobResult(ui.element):
    """The JSON or the URL as a text, of bytes their number, and all of it as a file."""

    def __init__(self, page: Page, submission_id: str) -> None:
        super().__init__("div")
        self.classes("stack")
        self._page = page
        self._name = submission_id
        self._content, self._ending = b"", ""
        with self:
            self._beginning = CopyBlock(page, page.t("job.result"), wrap=True)
            self._about = ui.label().classes("quiet")
            self._download = ui.button(page.t("job.result_download"), icon="download", color=None)
            self._download.style("align-self: start")
            self._download.props("outline no-caps dense data-test=job-result-download")
            self._download.on_click(self._send)

    def show(self, found: ResultView) -> None:
        """Show a result."""
        if found.kind is ResultKind.BYTES:
            text, self._ending, self._content = "", "bin", bytes_of(found)
        else:
            is_url = found.kind is ResultKind.URL
            text = found.value if is_url else json.dumps(found.value, indent=2, ensure_ascii=False)
            self._ending, self._content = "txt" if is_url else "json", text.encode("utf-8", "replace")
        self._beginning.show(text[:RESULT_CHARS])
        self._beginning.set_visibility(bool(text))
        self._about.set_text(self._page.t("job.result_size", size=f"{found.size_bytes:,}"))

    def _send(self) -> None:
        ui.download.content(self._content, f"{self._name}.{self._ending}")


def _read_result(service: LocalService, submission_id: str) -> ResultView | None:
    try:
        return service.result(submission_id)
    except NoResult:
        return None


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
    shown = _Job(page, job)
    await page.follow(shown.refresh)


async def _read(page: Page, submission_id: str) -> JobView | None:
    found = await page.read(("job", submission_id), lambda service: service.get_many([submission_id]))
    return found.get(submission_id)


class _Job:
    """The elements that change. What somebody looks for first is on top: the log, or why a job waits."""

    def __init__(self, page: Page, job: JobView) -> None:
        submission_id = job.submission_id
        self._page = page
        self._id = submission_id
        self._job: JobView | None = None
        self._attempts: Sequence[AttemptView] = ()
        self._looked_at = float("-inf")
        self._gone = ui.label(page.t("job.gone")).classes("raymc-banner").props("role=alert")
        self._gone.set_visibility(False)
        self._build_head()
        with ui.element("div").classes("job-cards") as self._cards:
            with ui.card().props("data-test=job-log"):
                heading(page.t("log.log"))
                self._log = LogView(page, submission_id) if job.has_log else None
                if not job.has_log:
                    ui.label(page.t("log.no_keeper")).classes("quiet")
            with ui.card().props("data-test=job-result") as self._result_card:
                heading(page.t("job.result"))
                self._result = JobResult(page, submission_id)
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
        self._result_card.set_visibility(False)

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
            await self._show_result(job)
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
        self._actions.show(job)
        self._table.show_attempts(self._attempts, said=job.message)
        self._environment.show(job, self._attempts)
        if self._log is not None:
            self._log.show(job, self._attempts)

    async def _show_result(self, job: JobView) -> None:
        name = self._id
        found = None
        if job.final:
            key = ("result", name, job.attempt)
            found = await self._page.read(key, lambda service: _read_result(service, name))
        self._result_card.set_visibility(found is not None)
        if found is not None:
            self._result.show(found)

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
