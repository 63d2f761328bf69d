"""What `raymc submit --no-wait` says: the id, and who schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.cli.console import say, write_json, write_line
from ray_multicluster_scheduler.cli.leader_status import leader_name

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import JobView


def tell_accepted(scheduler: Handle, accepted: Sequence[JobView], *, as_json: bool) -> None:
    """Write the id (of an array, the group's) to stdout and the story to stderr; or all of it as JSON."""
    leader, group = scheduler.service.leader(), accepted[0].group
    if as_json:
        name = None if leader is None else leader.holder
        found = scheduler.service.get_many([job.submission_id for job in accepted])
        jobs = [found[job.submission_id].model_dump(mode="json") for job in accepted]
        write_json({"group": group, "leader": name, "jobs": jobs})
        return
    write_line(group or accepted[0].submission_id)
    count = "It is" if len(accepted) == 1 else f"{len(accepted)} jobs are"
    if leader is not None:
        say(f"{count} accepted; {leader_name(leader)} schedules.")
    else:
        say(f"{count} accepted.")
