"""What would happen to a job: the candidates with their scores, the refusals, and what each would be sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import yaml
from nicegui import ui

from ray_multicluster_scheduler.core.placement.scoring import part_names
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.plain_table import Cell, PlainTable, Row
from ray_multicluster_scheduler.service.views import EnvironmentView, PlanView, ScoreView

_PARTS = tuple(part_names())


class PlanPanel(ui.element):
    """The answer of a dry run. It stays while a new one is under way."""

    def __init__(self, page: Page) -> None:
        super().__init__("div")
        self._page = page
        self._shown: PlanView | None = None
        self.classes("plan").props("data-test=plan")
        with self:
            self._verdict = ui.label().classes("plan-verdict").props("role=status")
            self._answer = ui.element("div").classes("plan")

    def say(self, text: str) -> None:
        """Say why there is no answer."""
        self._shown = None
        self._verdict.set_text(text)
        self._verdict.classes(remove="plan-goes plan-stays")
        self._answer.clear()

    def wait(self) -> None:
        """Say that an answer is on its way, unless an earlier one is shown."""
        if self._shown is None:
            self._verdict.set_text(self._page.t("submit.plan_asks"))

    def show(self, plan: PlanView) -> None:
        """Show an answer; the same one is left alone, for somebody may be reading in it."""
        if plan == self._shown:
            return
        self._shown = plan
        self._verdict.set_text(verdict(self._page, plan))
        self._verdict.classes(
            add="plan-stays" if plan.cluster is None else "plan-goes", remove="plan-goes plan-stays"
        )
        self._answer.clear()
        with self._answer:
            self._suggestions(plan)
            self._candidates(plan)
            self._refusals(plan)
            self._environments(plan)

    def _suggestions(self, plan: PlanView) -> None:
        if plan.suggestions:
            _heading(self._page.t("submit.suggestions"))
            with ui.element("ul").classes("plain-list"):
                for sentence in plan.suggestions:
                    with ui.element("li"):
                        ui.label(sentence)

    def _candidates(self, plan: PlanView) -> None:
        scores = plan.decision.scores
        if not scores:
            return
        _heading(self._page.t("submit.candidates"))
        parts = [self._page.words.known(f"submit.part_{part}", part) for part in _PARTS]
        headings = [self._page.t("common.cluster"), self._page.t("submit.score"), *parts]
        table = PlainTable(headings, empty="").props("tabindex=0")
        table.show([self._score_row(name, score, plan.cluster) for name, score in ranked(scores)])

    def _score_row(self, name: str, score: ScoreView, chosen: str | None) -> Row:
        shown = f"{name} ✓" if name == chosen else name
        if score.prefer:
            shown += f" ({self._page.t('submit.goes_first')})"
        numbers = [f"{score.total:.2f}", *(f"{score.parts.get(part, 0.0):.2f}" for part in _PARTS)]
        first: Cell = partial(_cluster_cell, shown, chosen=name == chosen)
        return name, [first, *numbers]

    def _refusals(self, plan: PlanView) -> None:
        if plan.decision.refusals:
            _heading(self._page.t("submit.refusals"))
            headings = [self._page.t("common.cluster"), self._page.t("submit.why_not")]
            table = PlainTable(headings, empty="").props("tabindex=0")
            refusals = sorted(plan.decision.refusals.items())
            table.show([(name, (name, refusal.sentence)) for name, refusal in refusals])

    def _environments(self, plan: PlanView) -> None:
        if plan.environments:
            _heading(self._page.t("submit.environments"))
        for name, sent in plan.environments.items():
            title = self._page.t("submit.refused_there", cluster=name) if sent.refused else name
            with ui.expansion(title, value=name == plan.cluster).classes("plan-environment"):
                if sent.refused is not None:
                    ui.label(sent.refused)
                else:
                    self._environment(sent)

    def _environment(self, sent: EnvironmentView) -> None:
        page = self._page
        ui.label(sent.entrypoint or "").classes("mono pre")
        headings = [page.t("submit.option"), page.t("submit.value"), page.t("submit.origin")]
        table = PlainTable(headings, empty=page.t("submit.environment_empty")).props("tabindex=0")
        rows: list[Row] = []
        for option, value in flattened(sent.runtime_env or {}):
            origin = sent.origins.get(option, "")
            word = page.words.known(f"submit.origin_{origin}", origin)
            rows.append((option, (option, partial(_value_cell, value), word)))
        table.show(rows)


def verdict(page: Page, plan: PlanView) -> str:
    """Say in one sentence where the job would go, or that it would wait."""
    if plan.cluster is not None:
        return page.t("submit.would_go", cluster=plan.cluster, why=plan.decision.sentence)
    if plan.position is None:
        return page.t("submit.would_wait_somewhere", why=plan.decision.sentence)
    return page.t("submit.would_wait", position=plan.position, why=plan.decision.sentence)


def ranked(scores: Mapping[str, ScoreView]) -> list[tuple[str, ScoreView]]:
    """Return the candidates, the best first."""
    return sorted(scores.items(), key=lambda each: (not each[1].prefer, -each[1].total, each[0]))


def flattened(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the options of an environment with their values as text, each variable by itself."""
    for option, value in environment.items():
        if option == "env_vars" and isinstance(value, Mapping):
            yield from ((f"env_vars.{name}", str(content)) for name, content in value.items())
        elif isinstance(value, str):
            yield option, value
        else:
            yield option, yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000).rstrip()


def _heading(text: str) -> None:
    ui.label(text).classes("plan-heading").props("role=heading aria-level=3")


def _cluster_cell(text: str, *, chosen: bool) -> None:
    label = ui.label(text)
    if chosen:
        label.classes("plan-chosen")


def _value_cell(text: str) -> None:
    ui.label(text).classes("mono pre")
