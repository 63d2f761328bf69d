"""All jobs over all clusters, newest first, with filters that live in the address."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import cast
from urllib.parse import parse_qsl

from nicegui import ui
from nicegui.events import GenericEventArguments
from starlette.datastructures import QueryParams

from ray_multicluster_scheduler.dashboard.frame import show_problem
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.heading import heading
from ray_multicluster_scheduler.dashboard.parts.job_bulk import Picked, act_on
from ray_multicluster_scheduler.dashboard.parts.job_filters import JobFilters
from ray_multicluster_scheduler.dashboard.parts.job_list_address import (
    PATH,
    ROWS,
    address,
    is_filtered,
    parse,
)
from ray_multicluster_scheduler.dashboard.parts.job_rows import Rows, rows_of, same_jobs
from ray_multicluster_scheduler.dashboard.parts.job_table import JobTable
from ray_multicluster_scheduler.errors import InvalidRequest, NotAuthenticated, SchedulerError
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.query import JobQuery

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
