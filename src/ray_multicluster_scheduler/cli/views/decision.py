"""Shows decisions and dry runs: for each cluster the parts of its score, or why it was refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.console import stdout_console
from ray_multicluster_scheduler.cli.views.render import plain_signs, sign
from ray_multicluster_scheduler.cluster_health.diagnosis import Verdict
from ray_multicluster_scheduler.core.placement.scoring import part_names

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.request import JobRequest
    from ray_multicluster_scheduler.service.views import DecisionView, EnvironmentView, PlanView, ScoreView

_PARTS = part_names()
_LEGEND = (
    "The highest score wins, however small it is: fit x weight x health + tags + warm + gpu. "
    "fit: how well the job fits into what is free there; warm: this environment was set up there before."
)


def decision_view(decision: DecisionView, *, plain: bool) -> Iterator[RenderableType]:
    """Yield the table of candidates, the best first, and a line for each refusal."""
    if decision.scores:
        yield _score_table(decision.scores, decision.cluster)
        yield Text(_LEGEND, style="dim")
    for name, refusal in sorted(decision.refusals.items()):
        yield Text.assemble(sign(Verdict.PROBLEM, plain=plain), (f" {name}: ", "bold"), refusal.sentence)


def _score_table(scores: Mapping[str, ScoreView], chosen: str | None) -> Table:
    """Show how each total comes about, fit × weight × health + the rest, and which go first."""
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


def show_plan(plan: PlanView, requests: Sequence[JobRequest]) -> None:
    """Print the verdict, the candidates, and per cluster the command and the environment."""
    console = stdout_console()
    if len(requests) > 1:
        console.print(f"An array of {len(requests)} jobs; shown is its first, {requests[0].submission_id}.")
    console.print(_verdict(plan))
    for sentence in plan.suggestions:
        console.print(f"  - {sentence}")
    for part in decision_view(plan.decision, plain=plain_signs(console)):
        console.print(part)
    for name, sent in plan.environments.items():
        _show_environment(console, name, sent)
    console.print("\nA dry run: nothing was submitted.", style="dim")


def _verdict(plan: PlanView) -> Text:
    if plan.cluster is not None:
        return Text.assemble("It would go to ", (plan.cluster, "bold green"), f": {plan.decision.sentence}.")
    ways = " What would let it start now:" if plan.suggestions else ""
    return Text(f"It would wait, at place {plan.position} of the queue.{ways}", style="yellow")


def _show_environment(console: Console, name: str, sent: EnvironmentView) -> None:
    import yaml  # noqa: PLC0415 - only a dry run needs it

    console.print(Text(f"\nOn {name} it would be", style="bold"))
    if sent.refused is not None:
        console.print(_indented(sent.refused, "red"))
        return
    console.print(_indented(sent.entrypoint or "", "cyan"))
    text = yaml.safe_dump(sent.runtime_env, sort_keys=False, allow_unicode=True, width=1000).rstrip()
    console.print(_indented(text))


def _indented(text: str, style: str = "") -> Text:
    return Text("\n".join(f"  {line}" for line in text.splitlines()), style=style, overflow="fold")
