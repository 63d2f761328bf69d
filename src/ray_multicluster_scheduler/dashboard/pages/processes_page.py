"""What runs inside the clusters, and the open Ray Client sessions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from nicegui import ui

from ray_multicluster_scheduler.dashboard.addresses import job_address
from ray_multicluster_scheduler.dashboard.chips import StateChip, When
from ray_multicluster_scheduler.dashboard.dialogs import confirmed, heading
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.tables import Cell, PlainTable, Row, WideTable
from ray_multicluster_scheduler.errors import NotAuthenticated, SchedulerError
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.views import ProcessList, ProcessView, SessionView

# What runs inside the clusters: a table that asks them when somebody wants to know.


#: Rows of one page of the table, and of all: more are narrowed down with the filters.
PAGE_ROWS = 50
MOST_ROWS = 2000
PROCESS_COLUMNS = ("cluster", "kind", "state", "pid", "age", "what", "why")
#: As they are offered to choose from.
KINDS = ("job", "driver", "session", "actor", "task", "hub", "bridge")


class ProcessTable(ui.element):
    """The table with its filters. Nothing is asked until `load`."""

    def __init__(self, page: Page) -> None:
        super().__init__("div")
        self._page = page
        self._found: ProcessList | None = None
        self.classes("plan")
        with self:
            with ui.element("div").classes("line centred"):
                self._cluster = self._filter("cluster")
                self._kind = self._filter("kind")
                self._button = ui.button(page.t("processes.refresh"), icon="refresh", on_click=self.load)
                self._button.props("outline no-caps data-test=refresh")
            self._problems = ui.element("div").classes("plan").props("role=status")
            self._count = ui.label(page.t("processes.asking")).classes("quiet").props("role=status")
            self._table = self._build_table()

    async def load(self) -> None:
        """Ask all clusters."""
        self._button.props("loading disable")
        try:
            found = await self._page.ask(lambda service: service.processes(), role=Role.READ_ALL)
        except NotAuthenticated:
            self._page.log_in()
        except SchedulerError as problem:
            self._page.say(str(problem), problem=True)
            self._count.set_text(self._page.t("processes.not_asked"))
        else:
            self._found = found
            self._offer(self._cluster, sorted({each.cluster for each in found.items}))
            kinds = {each.kind for each in found.items}
            self._offer(self._kind, [*(kind for kind in KINDS if kind in kinds), *(kinds - {*KINDS})])
            self._show_problems(found)
            self._show()
        finally:
            self._button.props(remove="loading disable")

    def _filter(self, name: str) -> ui.select:
        label = self._page.t(f"processes.{name}")
        chosen = ui.select({"": self._page.t("processes.all")}, label=label, value="", on_change=self._show)
        return chosen.props(f"outlined dense options-dense data-test=filter-{name}").classes("process-filter")

    def _offer(self, filter_: ui.select, words: Sequence[str]) -> None:
        """Offer these to choose from; what is chosen stays so, even if nothing of it is left."""
        kept = [*words, *({filter_.value} - {"", *words})]
        names = {word: self._page.words.known(f"processes.kind_{word}", word) for word in kept}
        filter_.set_options({"": self._page.t("processes.all"), **names}, value=filter_.value)

    def _build_table(self) -> WideTable:
        page = self._page
        headings = {name: page.t(f"processes.{name}") for name in PROCESS_COLUMNS}
        label = page.t("processes.processes")
        table = WideTable(
            headings, label=label, page_rows=PAGE_ROWS, kinds={"age": "lasting", "state": "state"}
        )
        for column in table.columns:
            column["sortable"] = True
        table.props("data-test=processes").classes("process-table")
        table.props["no-data-label"] = page.t("processes.nothing")
        table.add_slot("no-data", '<span class="quiet">{{ props.message }}</span>')  # it is no warning
        table.set_visibility(False)
        return table

    def _show_problems(self, found: ProcessList) -> None:
        self._problems.clear()
        with self._problems:
            for cluster, why in sorted(found.problems.items()):
                text = self._page.t("processes.problem", cluster=cluster, why=why)
                ui.label(text).classes("notice").style("margin: 0")

    def _show(self) -> None:
        if self._found is None:
            return
        chosen = matching(self._found.items, cluster=self._cluster.value, kind=self._kind.value)
        shown = [self._row(number, each) for number, each in enumerate(chosen[:MOST_ROWS])]
        self._table.show(shown)
        self._table.set_visibility(True)
        key = "processes.count" if len(chosen) <= MOST_ROWS else "processes.count_cut"
        self._count.set_text(self._page.t(key, count=len(chosen), most=MOST_ROWS))

    def _row(self, number: int, each: ProcessView) -> dict[str, Any]:
        kind = self._page.words.known(f"processes.kind_{each.kind}", each.kind)
        fields = each.model_dump(include={"cluster", "pid", "what", "why"})
        state = self._page.words.known(f"states.{each.state}", each.state.replace("_", " ").lower())
        return {
            **fields,
            "key": number,
            "kind": kind,
            "age": each.started_at,
            "state": state,
            "word": each.state,
        }


def matching(items: Sequence[ProcessView], *, cluster: str, kind: str) -> list[ProcessView]:
    """Return those of a cluster and of a kind; an empty word stands for all."""
    return [each for each in items if cluster in {"", each.cluster} and kind in {"", each.kind}]


# The open Ray Client sessions, each with a button that ends it.


SESSION_COLUMNS = ("session", "user", "cluster", "state", "since", "program", "helper")


class SessionTable:
    """A table that follows what happens. Only the store is asked."""

    def __init__(self, page: Page) -> None:
        self._page = page
        headings = [page.t(f"processes.{column}") for column in SESSION_COLUMNS]
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


async def build(page: Page) -> None:
    """Build the page. Everybody sees their own sessions; what runs besides is for those who see all."""
    with ui.card():
        heading(page.t("processes.sessions"))
        sessions = SessionTable(page)
    if page.visitor.may(Role.READ_ALL):
        with ui.card():
            heading(page.t("processes.processes"))
            ui.label(page.t("processes.about")).classes("quiet")
            table = ProcessTable(page)
        # Clusters may be slow or silent, so the page is there before they have answered.
        ui.timer(0, table.load, once=True)
    await page.follow(sessions.refresh)
