"""`raymc explain`: why a job is where it is, and what would let it start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ray_multicluster_scheduler.cli.console import stdout_console, write_json
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JobsArgument, JsonOption
from ray_multicluster_scheduler.cli.session import find_jobs, opened, stale_note
from ray_multicluster_scheduler.client.display import decision_view, explanation, plain_signs, state_text
from ray_multicluster_scheduler.model.states import JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.request import JobRequest
    from ray_multicluster_scheduler.service.views import (
        EnvironmentView,
        PlanView,
    )


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


def explain(words: JobsArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Say why a job is where it is, and what would let it start.

    For each cluster: the parts of its score, or why not.
    """
    with opened(config) as scheduler:
        jobs = find_jobs(scheduler, words, None)
        explained = [scheduler.service.explain(job.submission_id) for job in jobs]
        if as_json:
            shown = [story.model_dump(mode="json") for story in explained]
            write_json(shown[0] if len(shown) == 1 else shown)
            return
        console = stdout_console()
        for job, story in zip(jobs, explained, strict=True):
            head = Text.assemble((job.submission_id, "bold"), " ", state_text(job.state), f": {job.message}")
            console.print(head)
            for part in explanation(story, plain=plain_signs(console)):
                console.print(part)
        moved_on = [job for job in jobs if job.state is not JobState.QUEUED]
        if (note := stale_note(scheduler, moved_on)) is not None:
            console.print(note)
