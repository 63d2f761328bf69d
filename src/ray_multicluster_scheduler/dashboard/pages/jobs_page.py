"""All jobs over all clusters, newest first, with filters that live in the address."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol, cast
from urllib.parse import parse_qsl

from nicegui import ui
from nicegui.events import GenericEventArguments
from starlette.datastructures import QueryParams

from ray_multicluster_scheduler.dashboard.chips import state_text
from ray_multicluster_scheduler.dashboard.dialogs import confirmed, heading
from ray_multicluster_scheduler.dashboard.frame import show_problem
from ray_multicluster_scheduler.dashboard.job_list_address import (
    LINKED,
    PATH,
    ROWS,
    TYPED,
    Range,
    TimeRange,
    address,
    changed,
    is_filtered,
    parse,
)
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.errors import InvalidRequest, NotAuthenticated, SchedulerError
from ray_multicluster_scheduler.model.decision import REASONS
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.api import Service
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import MOST_PAGE_JOBS, JobQuery
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import JobPage, JobView

# The rows of a list of jobs, as the browser gets them. Open pages share them: nobody changes one.


#: What can be run again.
RETRIED = frozenset({JobState.FAILED, JobState.STOPPED})
#: What these say of themselves is that they are so.
_UNDER_WAY = frozenset({JobState.PLACED, JobState.SUBMITTED, JobState.RUNNING})
#: A cell shows two lines of it, and its tooltip this much.
MOST_MESSAGE = 1000

Row = Mapping[str, Any]


def title_of(job: JobView) -> str:
    """Return what people call a job: its name, and its index where others of an array have the same name."""
    name, index = job.own_name, index_of(job)
    if name is None:
        return job.submission_id
    return name if index is None or name.endswith(index) else f"{name} [{index}]"


def index_of(job: JobView) -> str | None:
    """Return the index of a job in its array; None: it is in none. `service/request.py` makes the ids."""
    head, _, index = job.submission_id.rpartition("-")
    return index if job.group is not None and head == job.group and index.isdecimal() else None


def exit_code_of(job: JobView) -> int | None:
    """Return the exit code that says all about the failure of a job; None: its message does."""
    return job.exit_code if job.state is JobState.FAILED else None


def _message(job: JobView) -> str:
    """Return what a row says of a job: nothing where its state says all."""
    if job.state is JobState.QUEUED:
        return job.waits_for or ("" if not job.attempt else job.message)
    if job.state is JobState.SUCCEEDED or (job.state in _UNDER_WAY and not job.setting_up):
        return ""
    return job.message


def _title_of_all(job: JobView) -> str:
    """Return what people call the jobs that are listed under this one."""
    name, index = job.own_name, index_of(job)
    if index is not None and name is not None and not name.endswith(index):
        return name  # the group of an array has an id for a name
    return job.group or name or job.submission_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of a list, and where it goes on."""

    rows: tuple[Row, ...]
    next_cursor: str | None = None


def rows_of(page: JobPage) -> Rows:
    """Return a row for each job of a page, or for all that are listed under it."""
    rows = tuple(row_of(job, page.members.get(job.submission_id)) for job in page.jobs)
    return Rows(rows=rows, next_cursor=page.next_cursor)


def row_of(job: JobView, members: Mapping[JobState, int] | None = None) -> Row:
    """Return what a row shows. `stop` and `retry` say for how many of its jobs that would do something."""
    states = members or {job.state: 1}
    return {
        "id": job.submission_id,
        "name": _title_of_all(job) if members else title_of(job),
        "state": job.state.value,
        "stopping": job.stopping and not job.final,
        "cluster": job.cluster or "",
        "user": job.user,
        "accepted": job.accepted_at,
        # A job that never started has waited until it ended.
        "waited": job.started_at or job.ended_at,
        "started": job.started_at,
        "ended": job.ended_at,
        "attempt": job.attempt,
        # The browser says these in the visitor's language.
        "reason": job.wait_reason,
        "exit": exit_code_of(job),
        "message": _message(job)[:MOST_MESSAGE],
        "about": (job.waits_for or job.message)[:MOST_MESSAGE],
        "members": members and {state.value: members[state] for state in JobState if members.get(state)},
        "stop": sum(count for state, count in states.items() if state not in FINAL),
        "retry": sum(count for state, count in states.items() if state in RETRIED),
    }


def same_jobs(former: Iterable[Row], now: Mapping[str, JobView]) -> tuple[Row, ...]:
    """Return the rows of the same jobs as they are now; a job that was deleted is left out."""
    return tuple(row_of(now[row["id"]]) for row in former if row["id"] in now)


# Stops or retries many jobs at once, after somebody has confirmed how many.


#: For each action the states of the jobs that it changes.
ACTIONS = {"stop": frozenset(JobState) - FINAL, "retry": RETRIED}
#: How many of the jobs are named in the question.
NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """What is selected: single jobs, and jobs that stand for all that are listed under them."""

    action: str
    jobs: tuple[str, ...]
    heads: tuple[str, ...]

    @classmethod
    def sent(cls, args: Any) -> Picked | None:
        """Return what a browser has sent; None: no browser of ours sends that."""
        if not isinstance(args, dict) or args.get("action") not in [*ACTIONS]:
            return None
        return cls(action=args["action"], jobs=_texts(args.get("jobs")), heads=_texts(args.get("heads")))


def _texts(given: Any) -> tuple[str, ...]:
    return tuple(each for each in given if isinstance(each, str)) if isinstance(given, list) else ()


def meant(picked: Picked, service: Service) -> tuple[JobView, ...]:
    """Return the selected jobs that the action still changes, each once."""
    states = ACTIONS[picked.action]
    found = service.get_many(picked.jobs)
    for head in picked.heads:
        found |= _listed_under(head, service, tuple(sorted(states)))
    return tuple(job for job in found.values() if job.state in states and (job.final or not job.stopping))


def _listed_under(head: str, service: Service, states: tuple[JobState, ...]) -> dict[str, JobView]:
    query = JobQuery(head=head, states=states, limit=MOST_PAGE_JOBS)
    found: dict[str, JobView] = {}
    while True:
        page = service.list_jobs(query)
        found |= {job.submission_id: job for job in page.jobs}
        if page.next_cursor is None:
            return found
        query = replace(query, cursor=page.next_cursor)


async def act_on(page: Page, picked: Picked) -> bool:
    """Ask whether that is really meant, and do it. False: nothing was done."""
    action = picked.action
    jobs = await page.ask(partial(meant, picked), role=Role.SUBMIT)
    if not jobs:
        page.say(page.t(f"jobs.{action}_none"))
        return False
    if not await _confirmed(page, action, jobs):
        return False
    ids = [job.submission_id for job in jobs]

    def change(service: Service) -> tuple[JobView, ...]:
        return service.stop(ids) if action == "stop" else service.retry(ids)

    done = page.t(f"jobs.{action}_done", n=len(ids))
    return await page.act(Role.SUBMIT, change, done=done) is not None


async def _confirmed(page: Page, action: str, jobs: Sequence[JobView]) -> bool:
    number = len(jobs)
    question = page.t(f"jobs.{action}_one" if number == 1 else f"jobs.{action}_many", n=number)
    names = [title_of(job) for job in jobs[:NAMED]]
    if number > NAMED:
        names.append(page.t("jobs.and_more", n=number - NAMED))
    do, colour = page.t(f"jobs.{action}", n=number), "negative" if action == "stop" else "primary"
    return await confirmed(page, question, about="\n".join(names), do=do, colour=colour)


# The filters of the list of jobs. Elements are never built anew, so whoever types keeps the focus.


#: How long somebody pauses who has finished a word.
DEBOUNCE_MS = 350


class Changed(Protocol):
    """Is told what to show from now on."""

    async def __call__(self, query: JobQuery, *, typed: bool = False) -> None:
        """`typed`: letter by letter, which makes no steps in the browser's history."""


class JobFilters(ui.element):
    """One field for each filter, and a button for each one that only a link can set."""

    def __init__(self, page: Page, clusters: Sequence[str], *, changed: Changed) -> None:
        super().__init__("div")
        self.classes("jobs-filters").props("role=search")
        self._page = page
        self._changed = changed
        self._query = JobQuery()
        self._clusters = list(clusters)
        self._typed: dict[str, ui.input] = {}
        with self:
            self._states = ui.select(
                {state.value: state_text(page, state.value) for state in JobState},
                multiple=True,
                value=[],
                label=page.t("common.state"),
                clearable=True,
                on_change=self._look,
            ).props("dense outlined data-test=filter-state")
            self._states.classes("jobs-wide")
            self._cluster = ui.select(
                self._clusters, label=page.t("common.cluster"), clearable=True, on_change=self._look
            ).props("dense outlined data-test=filter-cluster")
            self._times = TimeRange(page, self._choose_times)
            for name in TYPED:
                if name != "user" or page.visitor.caller.only is None:
                    self._add_typed(page, name)
            self._linked = {name: self._add_linked(page, name) for name in LINKED}
            self._clear = ui.button(icon="filter_alt_off", on_click=self.show_all)
            self._clear.props("flat round dense data-test=clear")
            self._clear.props["aria-label"] = self._clear.props["title"] = page.t("jobs.clear")

    def show(self, query: JobQuery) -> None:
        """Show what the address asks for."""
        self._query = query
        self._states.set_value([state.value for state in query.states or ()])
        if query.cluster is not None and query.cluster not in self._clusters:
            self._clusters.append(query.cluster)
            self._cluster.set_options(self._clusters)
        self._cluster.set_value(query.cluster)
        self._times.show(query.changed_since, query.changed_until)
        for name, field in self._typed.items():
            text = getattr(query, name) or ""
            if str(field.value or "").strip() != text:  # who types a space means to go on
                field.set_value(text)
        for name, button in self._linked.items():
            value = getattr(query, name)
            button.set_visibility(value is not None)
            text = self._page.words.known(f"reasons.{value}", str(value))
            button.set_text(f"{button.props['data-name']}: {text if name == 'wait_reason' else value}")
        self._clear.set_visibility(is_filtered(query))

    async def show_all(self) -> None:
        """Take all filters away."""
        await self._changed(JobQuery(limit=ROWS, heads_only=True))

    async def _choose_times(self, chosen: Range) -> None:
        since, until = chosen
        await self._changed(changed(self._query, changed_since=since, changed_until=until))

    def _add_typed(self, page: Page, name: str) -> None:
        label = page.t("common.user") if name == "user" else page.t(f"jobs.filter_{name}")

        async def typed() -> None:
            await self._look(typed=True)

        field = ui.input(label, on_change=typed).props(f"dense outlined debounce={DEBOUNCE_MS}")
        self._typed[name] = field.props(f"clearable maxlength=200 data-test=filter-{name}")
        if name == "text":
            field.classes("jobs-wide")

    def _add_linked(self, page: Page, name: str) -> ui.button:
        async def remove() -> None:
            await self._changed(changed(self._query, **{name: None}))

        button = ui.button(icon="close", on_click=remove).classes("jobs-linked")
        button.props["data-name"] = page.t(f"jobs.filter_{name}")
        return button.props(f"outline dense no-caps data-test=filter-{name}")

    async def _look(self, *, typed: bool = False) -> None:
        """Tell what the fields ask for; nothing if that is shown already, as after `show`."""
        words = {name: str(field.value or "").strip() or None for name, field in self._typed.items()}
        states = tuple(JobState[word] for word in self._states.value or ()) or None
        asked = changed(self._query, states=states, cluster=self._cluster.value, **words)
        if asked != changed(self._query):
            await self._changed(asked, typed=typed)


# The table of jobs: one element for all rows, which the browser builds. It also keeps the address.


_WORDS = (
    "name", "submitted", "waited", "ran", "message", "attempt", "stopping", "jobs", "open", "close", "pick",
    "pick_all", "picked", "stop", "retry", "unpick", "all_of", "loading", "newest", "newer", "older", "pages",
    "exit_code",
)  # fmt: skip
_COMMON = ("state", "cluster", "user")


class JobTable(ui.element, component="job_table.js"):
    """Emits `open` and `close` (of a row), `bulk` (with what is selected), `turn` (a page) and `address`."""

    def __init__(self, page: Page, *, may_pick: bool, with_user: bool) -> None:
        super().__init__()
        words = {word: page.t(f"jobs.{word}") for word in _WORDS}
        words |= {word: page.t(f"common.{word}") for word in _COMMON}
        self._props["words"] = words
        self._props["states"] = {state.value: state_text(page, state.value) for state in JobState}
        self._props["reasons"] = {reason: page.t(f"reasons.{reason}") for reason in REASONS}
        self._props["mayPick"] = may_pick
        self._props["withUser"] = with_user
        self._shown: tuple[object, ...] = ()
        self.show(Rows(rows=()), {}, place="", newer=False)

    def show(self, rows: Rows, members: Mapping[str, Rows], *, place: str, newer: bool) -> None:
        """Show rows, and under open ones their jobs. What is selected stays so while `place` is the same."""
        shown = (rows, members, place, newer)
        if shown == self._shown:
            return
        self._shown = shown
        self._props["rows"] = rows.rows
        self._props["members"] = {head: _inner(each) for head, each in members.items()}
        self._props["place"] = place
        self._props["newer"] = newer
        self._props["older"] = rows.next_cursor is not None
        self.update()

    def go(self, address: str, *, replace: bool) -> None:
        """Let the browser show this address, as a new step of its history or instead of the last one."""
        self.run_method("go", address, replace)

    def unpick(self) -> None:
        """Select nothing any more."""
        self.run_method("unpick")


def _inner(rows: Rows) -> dict[str, Sequence[Row] | Any]:
    return {"rows": rows.rows, "more": rows.next_cursor is not None}


#: After a refresh that took long the next one waits this many times as long.
REST = 4
SUBMIT_COMMAND = "raymc submit -- python script.py"


async def build(page: Page) -> None:
    """Build the page, and keep it up to date."""
    clusters = await page.read("clusters", lambda service: service.clusters())
    try:
        query = parse(cast(QueryParams, page.query).multi_items())
        await page.read(_key(query), partial(_list, query))  # it may refuse the address, too
    except InvalidRequest as problem:
        page.client.status_code = HTTPStatus.BAD_REQUEST
        show_problem(page, str(problem))
        ui.link(page.t("jobs.clear"), PATH).props("data-test=clear")
        return
    jobs = _Jobs(page, query, [each.name for each in clusters])
    await page.follow(jobs.follow)


class _Jobs:
    """The list that is shown, and how it is changed."""

    def __init__(self, page: Page, query: JobQuery, clusters: list[str]) -> None:
        self._page = page
        self._query = query
        self._rows: Rows | None = None
        self._opened: set[str] = set()
        #: Questions may overtake each other: their number, and the last one whose answer is shown.
        self._asked = self._answered = 0
        #: For each list that was reached with "older" the one from which that was.
        self._newer: dict[JobQuery, JobQuery] = {}
        self._rest_until = 0.0
        self._filters = JobFilters(page, clusters, changed=self._go)
        self._busy = ui.linear_progress(show_value=False, size="3px").props("indeterminate role=status")
        self._busy.props["aria-label"] = page.t("jobs.loading")
        self._busy.set_visibility(False)
        may = page.visitor.may
        self._table = JobTable(page, may_pick=may(Role.SUBMIT), with_user=page.visitor.caller.only is None)
        self._table.on("open", self._open).on("close", self._close)
        self._table.on("turn", self._turn).on("address", self._moved).on("bulk", self._act)
        self._none = self._no_match()
        self._first = self._first_steps()
        self._filters.show(query)

    async def follow(self) -> None:
        """Refresh, but not so often that a search through all jobs keeps the store busy."""
        begun = time.monotonic()
        if begun >= self._rest_until:
            await self.refresh()
            ended = time.monotonic()
            self._rest_until = ended + REST * (ended - begun)

    async def refresh(self) -> None:
        """Read what is shown as it is now."""
        query, page = self._query, self._page
        self._asked += 1
        turn = self._asked
        rows = await self._read(query)
        members = {}
        for head in sorted(self._opened):
            inner = JobQuery(head=head, limit=ROWS)
            members[head] = await page.read(_key(inner), partial(_list, inner))
        if query is not self._query or turn < self._answered:
            return  # another list is to be shown, or a later answer is shown already
        self._rows, self._answered = rows, turn
        self._table.show(rows, members, place=address(query), newer=query.cursor is not None)
        self._none.set_visibility(not rows.rows and is_filtered(query))
        self._first.set_visibility(not rows.rows and not is_filtered(query))

    async def _read(self, query: JobQuery) -> Rows:
        """Read a list. A later page keeps its jobs, also those that a filter would not choose any more."""
        if query.cursor is None or query.heads_only or self._rows is None:
            return await self._page.read(_key(query), partial(_list, query))
        ids = tuple(row["id"] for row in self._rows.rows)
        now = await self._page.read(("jobs", ids), lambda service: service.get_many(ids))
        return replace(self._rows, rows=same_jobs(self._rows.rows, now))

    async def _go(self, query: JobQuery, *, typed: bool = False, moved: bool = False) -> None:
        """Show another list, with its address."""
        self._query, self._rows = query, None
        self._opened.clear()
        self._filters.show(query)
        if not moved:
            self._table.go(address(query), replace=typed)
        await self._now()

    async def _now(self) -> None:
        """Refresh at once, because the visitor has asked for something."""
        page = self._page
        self._busy.set_visibility(True)
        try:
            await self.refresh()
        except NotAuthenticated:
            page.log_in()
        except SchedulerError as problem:
            page.say(str(problem), problem=True)
        finally:
            self._busy.set_visibility(False)

    async def _turn(self, event: GenericEventArguments) -> None:
        query = self._query
        first = replace(query, cursor=None)
        if event.args == "older" and self._rows is not None and self._rows.next_cursor is not None:
            older = replace(query, cursor=self._rows.next_cursor)
            self._newer[older] = query
            await self._go(older)
        elif event.args == "newer":
            await self._go(self._newer.get(query, first))
        elif event.args == "newest":
            await self._go(first)

    async def _moved(self, event: GenericEventArguments) -> None:
        """Follow the browser's back and forward buttons."""
        try:
            query = parse(parse_qsl(str(event.args).removeprefix("?")))
        except InvalidRequest as problem:
            self._page.say(str(problem), problem=True)
            return
        if query != self._query:
            await self._go(query, moved=True)

    async def _open(self, event: GenericEventArguments) -> None:
        rows = self._rows.rows if self._rows is not None else ()
        if any(row["id"] == event.args and row["members"] for row in rows):
            self._opened.add(str(event.args))
            await self._now()

    def _close(self, event: GenericEventArguments) -> None:
        self._opened.discard(str(event.args))

    async def _act(self, event: GenericEventArguments) -> None:
        picked = Picked.sent(event.args)
        try:
            done = picked is not None and await act_on(self._page, picked)
        except NotAuthenticated:
            self._page.log_in()
        except SchedulerError as problem:
            self._page.say(str(problem), problem=True)
        else:
            if done:
                self._table.unpick()
                await self._now()

    def _no_match(self) -> ui.element:
        page = self._page
        with ui.card().props("data-test=no-match") as card:
            ui.label(page.t("jobs.no_match"))
            ui.button(page.t("jobs.clear"), on_click=self._filters.show_all).props("outline no-caps")
        card.set_visibility(False)
        return card

    def _first_steps(self) -> ui.element:
        page = self._page
        with ui.card().props("data-test=no-jobs") as card:
            key = "jobs.none_yet" if page.visitor.caller.only is None else "jobs.none_own"
            heading(page.t(key))
            if page.visitor.may(Role.SUBMIT):
                ui.label(page.t("jobs.first_command"))
                ui.label(SUBMIT_COMMAND).classes("mono jobs-command")
                ui.link(page.t("jobs.first_page"), "/submit")
        card.set_visibility(False)
        return card


def _list(query: JobQuery, service: LocalService) -> Rows:
    return rows_of(service.list_jobs(query))


def _key(query: JobQuery) -> tuple[str, JobQuery]:
    return "rows of jobs", query
