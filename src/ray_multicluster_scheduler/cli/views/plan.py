"""`raymc submit --dry-run`: where a job would go, and exactly what each cluster would be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import yaml
from rich.console import Console
from rich.text import Text

from ray_multicluster_scheduler.cli.views.decision import decision_view
from ray_multicluster_scheduler.cli.views.render import plain_signs, stdout_console

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.request import JobRequest
    from ray_multicluster_scheduler.service.views import EnvironmentView, PlanView


def show_plan(plan: PlanView, requests: Sequence[JobRequest]) -> None:
    """Print the candidates, the verdict, and per cluster the command and the environment."""
    console = stdout_console()
    if len(requests) > 1:
        console.print(f"An array of {len(requests)} jobs; shown is its first, {requests[0].submission_id}.")
    for part in decision_view(plan.decision, plain=plain_signs(console)):
        console.print(part)
    console.print(_verdict(plan))
    for sentence in plan.suggestions:
        console.print(f"  - {sentence}")
    for name, sent in plan.environments.items():
        _show_environment(console, name, sent)
    console.print("\nA dry run: nothing was submitted.", style="dim")


def _verdict(plan: PlanView) -> Text:
    if plan.cluster is not None:
        return Text.assemble("It would go to ", (plan.cluster, "bold green"), f": {plan.decision.sentence}.")
    ways = " What would let it start now:" if plan.suggestions else ""
    return Text(f"It would wait, at place {plan.position} of the queue.{ways}", style="yellow")


def _show_environment(console: Console, name: str, sent: EnvironmentView) -> None:
    console.print(Text(f"\nOn {name} it would be", style="bold"))
    if sent.refused is not None:
        console.print(_indented(sent.refused, "red"))
        return
    console.print(_indented(sent.entrypoint or "", "cyan"))
    text = yaml.safe_dump(sent.runtime_env, sort_keys=False, allow_unicode=True, width=1000).rstrip()
    console.print(_indented(text))


def _indented(text: str, style: str = "") -> Text:
    return Text("\n".join(f"  {line}" for line in text.splitlines()), style=style, overflow="fold")
