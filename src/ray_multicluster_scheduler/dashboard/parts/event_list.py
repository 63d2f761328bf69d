"""What has happened to a job, the newest first."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import StateChip, When
from ray_multicluster_scheduler.service.query import EVENTS
from ray_multicluster_scheduler.service.views import EventView

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

    async def _read(self, after: int) -> Sequence[EventView]:
        name = self._id
        return await self._page.read(
            ("events", name, after), lambda service: service.events(name, after=after)
        )

    def _add(self, event: EventView) -> None:
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
