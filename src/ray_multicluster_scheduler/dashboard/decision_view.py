"""What the planner says of each cluster: its score, or why it refused the job; environments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from nicegui import ui

from ray_multicluster_scheduler.core.placement.scoring import FACTORS, FIT
from ray_multicluster_scheduler.dashboard.chips import resources_text
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.tables import PlainTable, Row
from ray_multicluster_scheduler.dashboard.words import Words
from ray_multicluster_scheduler.model.decision import Refusal, Score
from ray_multicluster_scheduler.service.views import DecisionView

_FACTORS = frozenset(part.name for part in FACTORS)


class Scores(PlainTable):
    """The clusters that could take a job, the best first. Without one the table is not there."""

    def __init__(self, page: Page) -> None:
        heads = [page.t("common.cluster"), page.t("decision.score"), page.t("decision.parts")]
        super().__init__(heads)
        self._page = page
        self.props("data-test=scores").classes("by-word")

    def show_decision(self, decision: DecisionView | None) -> None:
        """Show the scores of a decision."""
        scores, chosen = ({}, None) if decision is None else (decision.scores, decision.cluster)
        most = max((score.total for score in scores.values()), default=0.0)
        best_first = sorted(
            scores, key=lambda name: (name != chosen, not scores[name].prefer, -scores[name].total, name)
        )
        self.show([self._row(name, scores[name], most=most, chosen=name == chosen) for name in best_first])

    def _row(self, name: str, score: Score, *, most: float, chosen: bool) -> Row:
        page = self._page
        notes = [page.t("decision.chosen")] if chosen else []
        notes += [page.t("decision.prefer")] if score.prefer else []
        cluster = f"{name} ({', '.join(notes)})" if notes else name
        formula = score_text(page.words, score)
        share = max(0.0, score.total / most) if most > 0 else 0.0
        return (cluster, formula, share), (cluster, partial(_bar, score.total, share), formula)


class Refusals(PlainTable):
    """The clusters that cannot take a job now, with their reasons. Without one the table is not there."""

    def __init__(self, page: Page) -> None:
        heads = [page.t("common.cluster"), page.t("decision.refused"), page.t("decision.missing")]
        super().__init__(heads)
        self._page = page
        self.props("data-test=refusals").classes("by-word")

    def show_decision(self, decision: DecisionView | None) -> None:
        """Show the refusals of a decision."""
        refusals = {} if decision is None else decision.refusals
        self.show([self._row(name, refusal) for name, refusal in sorted(refusals.items())])

    def _row(self, name: str, refusal: Refusal) -> Row:
        words = self._page.words
        cause = words.known(f"causes.{refusal.cause.value}", refusal.cause.value)
        missing = resources_text(words, refusal.missing) or "–"
        key = (name, refusal.cause, refusal.sentence, missing)
        return key, (name, partial(_refused, cause, refusal.sentence), missing)


def score_text(words: Words, score: Score) -> str:
    """Return the parts of a score as the formula that they are of."""
    pieces = []
    for part, value in score.parts.items():
        sign = "" if part == FIT.name else "× " if part in _FACTORS else "− " if value < 0 else "+ "
        size = -value if sign == "− " else value
        pieces.append(f"{sign}{words.known(f'decision.part_{part}', part)} {size:.2f}")
    return " ".join(pieces)


def _bar(total: float, share: float) -> None:
    with ui.element("div").classes("score"):
        ui.label(f"{total:.2f}")
        with ui.element("div").classes("bar").props("aria-hidden=true"):
            ui.element("div").classes("bar-used").style(f"width: {100 * share:.1f}%")


def _refused(cause: str, sentence: str) -> None:
    ui.label(cause)
    ui.label(sentence).classes("quiet lines")


# An environment, option by option, with who has set each.


def environment_rows(
    runtime_env: Mapping[str, Any], origins: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Return option, value and origin, each variable for itself; an origin that is not told is empty."""
    rows = []
    for option, value in runtime_env.items():
        if option == "env_vars" and isinstance(value, Mapping):
            rows += [(f"env_vars.{name}", str(each)) for name, each in value.items()]
        else:
            rows.append((option, value if isinstance(value, str) else _readable(value)))
    return [(option, value, origins.get(option, "")) for option, value in rows]


def _readable(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1 if len(str(value)) > 60 else None)


class EnvironmentTable(PlainTable):
    """Three columns: option, value, and whether the cluster, the job or the scheduler has set it."""

    def __init__(self, page: Page, *, empty: str) -> None:
        heads = [page.t(f"environment.{name}") for name in ("option", "value", "origin")]
        super().__init__(heads, empty=empty)
        self._page = page
        self.props("data-test=environment").classes("by-word")

    def show_environment(self, runtime_env: Mapping[str, Any], origins: Mapping[str, str]) -> None:
        """Show an environment."""
        self.show([self._row(*row) for row in environment_rows(runtime_env, origins)])

    def _row(self, option: str, value: str, origin: str) -> Row:
        told = self._page.words.known(f"environment.of_{origin}", origin)
        return (option, value, origin), (partial(_mono, option), partial(_mono, value), told)


def _mono(text: str) -> None:
    ui.label(text).classes("mono lines")
