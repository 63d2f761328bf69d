"""`raymc explain`: why a job is where it is, and what would let it start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ray_multicluster_scheduler.cli.console import stdout_console, write_json
from ray_multicluster_scheduler.cli.leader_status import stale_note
from ray_multicluster_scheduler.cli.options.common import ConfigOption, JobsArgument, JsonOption
from ray_multicluster_scheduler.cli.session import find_jobs, opened
from ray_multicluster_scheduler.cli.views.decision import decision_view
from ray_multicluster_scheduler.cli.views.reasons import upper_first
from ray_multicluster_scheduler.cli.views.render import plain_signs, state_text
from ray_multicluster_scheduler.model.states import JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.views import Explanation


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
            _show_decision(console, story)
            if job.state is JobState.QUEUED:
                _show_ways_out(console, story)
        moved_on = [job for job in jobs if job.state is not JobState.QUEUED]
        if (note := stale_note(scheduler, moved_on)) is not None:
            console.print(note)


def _show_decision(console: Console, explained: Explanation) -> None:
    decision = explained.decision
    if decision is None:
        never = "It never got a cluster."
        console.print(f"{upper_first(explained.why)}." if explained.state is JobState.QUEUED else never)
        return
    if decision.cluster is not None:
        verb = "Would be placed" if explained.state is JobState.QUEUED else "Placed"
        console.print(Text.assemble(f"{verb} on ", (decision.cluster, "bold"), f": {decision.sentence}."))
    for part in decision_view(decision, plain=plain_signs(console)):
        console.print(part)


def _show_ways_out(console: Console, explained: Explanation) -> None:
    if explained.position is not None:
        console.print(f"Place {explained.position} in the queue.")
    if explained.decision is not None and (kept := explained.decision.reserved_on):
        console.print(f"It has waited long: room is being kept for it on {kept}.")
    if explained.suggestions:
        console.print("What would let it start now:")
        for sentence in explained.suggestions:
            console.print(f"  - {sentence}")
