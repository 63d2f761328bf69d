"""Why a job is where it is: each cluster's score or refusal, and what would let the job start."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.job_facts import resources_text
from ray_multicluster_scheduler.dashboard.parts.plain_table import PlainTable, Row
from ray_multicluster_scheduler.service.views import DecisionView, Explanation, RefusalView, ScoreView


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
            heads = [page.t(f"job.{name}") for name in ("cluster", "score", "parts")]
            self._scores = PlainTable(heads, empty="").props("data-test=job-scores").classes("by-word")
            heads = [page.t(f"job.{name}") for name in ("cluster", "refused", "missing")]
            self._refusals = PlainTable(heads, empty="").props("data-test=job-refusals").classes("by-word")

    def show(self, told: Explanation) -> None:
        """Show an explanation."""
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
        self._show_clusters(decision)

    def _place_text(self, told: Explanation) -> str:
        page, decision = self._page, told.decision
        parts = []
        if told.position is not None:
            parts.append(page.t("job.position", position=told.position))
        if decision is not None and decision.reserved_on is not None:
            parts.append(page.t("job.reserved_on", cluster=decision.reserved_on))
        return " ".join(parts)

    def _show_clusters(self, decision: DecisionView | None) -> None:
        scores: Mapping[str, ScoreView] = {} if decision is None else decision.scores
        refusals: Mapping[str, RefusalView] = {} if decision is None else decision.refusals
        chosen = None if decision is None else decision.cluster
        most = max((score.total for score in scores.values()), default=0.0)
        best_first = sorted(scores, key=lambda name: (name != chosen, -scores[name].total))
        self._scores.show(
            [self._score_row(name, scores[name], most=most, chosen=chosen) for name in best_first]
        )
        self._scores.set_visibility(bool(scores))
        self._refusals.show([self._refusal_row(name, refusal) for name, refusal in refusals.items()])
        self._refusals.set_visibility(bool(refusals))

    def _score_row(self, name: str, score: ScoreView, *, most: float, chosen: str | None) -> Row:
        page = self._page
        notes = [page.t("job.chosen")] if name == chosen else []
        notes += [page.t("job.prefer")] if score.prefer else []
        cluster = f"{name} ({', '.join(notes)})" if notes else name
        parts = " · ".join(
            f"{page.words.known(f'job.part_{part}', part)} {value:.2f}" for part, value in score.parts.items()
        )
        share = max(0.0, score.total / most) if most > 0 else 0.0
        key = (cluster, score.total, parts, share)
        return key, (cluster, partial(_bar, score.total, share), parts)

    def _refusal_row(self, name: str, refusal: RefusalView) -> Row:
        page = self._page
        word = page.words.known(f"causes.{refusal.cause.value}", refusal.cause.value)
        missing = resources_text(page, refusal.missing) or "–"
        key = (name, refusal.cause, refusal.sentence, missing)
        return key, (name, partial(_refused, word, refusal.sentence), missing)


def _bar(total: float, share: float) -> None:
    with ui.element("div").classes("score"):
        ui.label(f"{total:.2f}")
        with ui.element("div").classes("bar").props("aria-hidden=true"):
            ui.element("div").classes("bar-used").style(f"width: {100 * share:.1f}%")


def _refused(word: str, sentence: str) -> None:
    ui.label(word)
    ui.label(sentence).classes("quiet lines")
