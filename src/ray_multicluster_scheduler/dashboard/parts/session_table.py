"""The open Ray Client sessions, each with a button that ends it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nicegui import ui

from ray_multicluster_scheduler.dashboard.addresses import job_address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import StateChip, When
from ray_multicluster_scheduler.dashboard.parts.confirm import confirmed
from ray_multicluster_scheduler.dashboard.parts.plain_table import Cell, PlainTable, Row
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.views import SessionView

COLUMNS = ("session", "user", "cluster", "state", "since", "program", "helper")


class SessionTable:
    """A table that follows what happens. Only the store is asked."""

    def __init__(self, page: Page) -> None:
        self._page = page
        headings = [page.t(f"processes.{column}") for column in COLUMNS]
        if page.visitor.may(Role.SUBMIT):
            headings.append(page.t("processes.action"))
        self._table = PlainTable(headings, empty=page.t("processes.no_sessions"))
        self._table.classes("roomy").props("data-test=sessions")

    async def refresh(self) -> None:
        """Read the sessions, and change what has changed."""
        self._show(await self._page.read("sessions", lambda service: service.sessions()))

    def _show(self, sessions: Sequence[SessionView]) -> None:
        self._table.show([self._row(session) for session in sessions])

    def _row(self, session: SessionView) -> Row:
        page, name = self._page, session.submission_id
        helper = [] if session.helper_pid is None else [page.t("processes.pid_of", pid=session.helper_pid)]
        cells: list[Cell] = [
            partial(ui.link, name, job_address(name)),
            session.user,
            session.cluster or "",
            lambda: StateChip(page).show(session.state.value),
            partial(When, session.started_at or session.accepted_at),
            session.client_address or page.t("common.unknown"),
            " · ".join([*helper, *filter(None, (session.helper_address, session.ray_job_id))]),
        ]
        if page.visitor.may(Role.SUBMIT):
            cells.append(partial(self._end_button, session))
        return session, cells

    def _end_button(self, session: SessionView) -> None:
        button = ui.button(self._page.t("processes.end"), on_click=partial(self._end, session))
        button.props("outline dense no-caps color=negative data-test=end-session")
        button.props["aria-label"] = f"{self._page.t('processes.end')}: {session.submission_id}"

    async def _end(self, session: SessionView) -> None:
        page, name = self._page, session.submission_id
        question = page.t("processes.end_sure", session=name, user=session.user)
        if await confirmed(page, question, do=page.t("processes.end")):
            done = page.t("processes.ended", session=name)
            await page.act(Role.SUBMIT, lambda service: service.stop([name]), done=done)
