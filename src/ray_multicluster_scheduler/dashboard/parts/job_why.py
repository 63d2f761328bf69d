"""Why a job is where it is: each cluster's score or refusal, and what would let the job start."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.decision_view import Refusals, Scores
from ray_multicluster_scheduler.service.views import Explanation


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
