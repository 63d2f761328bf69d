"""What has happened to a job, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import StateChip, When
from ray_multicluster_scheduler.dashboard.parts.tables import PlainTable, Row
from ray_multicluster_scheduler.service.query import EVENTS
from ray_multicluster_scheduler.service.views import EventView

SHOWN = 100


class JobEvents(ui.element):
    """A table of moves. It reads only what came after what it has."""

    def __init__(self, page: Page, submission_id: str) -> None:
        super().__init__("div")
        self.classes("stack")
        self._page = page
        self._id = submission_id
        self._events: list[EventView] = []
        with self:
            names = ("time", "move", "cluster", "reason")
            self._table = PlainTable([page.t(f"job.{name}") for name in names], empty="")
            self._table.props("data-test=job-events")
            self._more = ui.label(page.t("job.events_more", shown=SHOWN)).classes("quiet")

    async def refresh(self) -> None:
        """Read what is new, and show it."""
        while True:
            after = self._events[-1].id if self._events else 0
            fresh = await self._read(after)
            self._events += fresh
            if len(fresh) < EVENTS:
                break
        self._more.set_visibility(len(self._events) > SHOWN)
        self._events = self._events[-SHOWN - 1 :]
        self._table.show([self._row(each) for each in reversed(self._events[-SHOWN:])])

    async def _read(self, after: int) -> Sequence[EventView]:
        name = self._id
        return await self._page.read(
            ("events", name, after), lambda service: service.events(name, after=after)
        )

    def _row(self, event: EventView) -> Row:
        when = partial(When, event.at, style="moment")
        return event.id, (when, partial(self._move, event), event.cluster or "", event.reason)

    def _move(self, event: EventView) -> None:
        with ui.element("div").classes("move"):
            if event.old is not None:
                StateChip(self._page).show(event.old.value)
                ui.label("→")
            StateChip(self._page).show(event.new.value)
