"""How a decision looks: for each cluster the parts of its score, or why it was refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.views.render import sign
from ray_multicluster_scheduler.policy.diagnosis import Verdict
from ray_multicluster_scheduler.policy.score import BONUSES, FACTORS

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.views import DecisionView, ScoreView

_PARTS = tuple(part.__name__ for part in (*FACTORS, *BONUSES))


def decision_view(decision: DecisionView, *, plain: bool) -> Iterator[RenderableType]:
    """Yield the table of candidates, the best first, and a line for each refusal."""
    if decision.scores:
        yield _score_table(decision.scores, decision.cluster)
    for name, refusal in sorted(decision.refusals.items()):
        yield Text.assemble(sign(Verdict.PROBLEM, plain=plain), (f" {name}: ", "bold"), refusal.sentence)


def _score_table(scores: Mapping[str, ScoreView], chosen: str | None) -> Table:
    """Show how each total comes about, free_share × weight × health + the rest, and who goes first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("cluster", overflow="fold")
    for part in _PARTS:
        table.add_column(part.replace("_", " "), justify="right")
    table.add_column("score", justify="right")
    some_first = any(score.prefer for score in scores.values())
    if some_first:
        table.add_column("prefer")
    for name, score in sorted(scores.items(), key=_rank):
        style = "bold green" if name == chosen else ""
        numbers = [f"{score.parts.get(part, 0.0):.2f}" for part in _PARTS]
        first = ["first" if score.prefer else ""] if some_first else []
        table.add_row(Text(name, style=style), *numbers, Text(f"{score.total:.2f}", style=style), *first)
    return table


def _rank(candidate: tuple[str, ScoreView]) -> tuple[bool, float, str]:
    name, score = candidate
    return not score.prefer, -score.total, name
