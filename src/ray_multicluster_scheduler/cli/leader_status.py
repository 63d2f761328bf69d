"""Who schedules: which process, or nobody."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.text import Text

from ray_multicluster_scheduler.cli.views.render import age
from ray_multicluster_scheduler.clock import SystemClock

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import Handle
    from ray_multicluster_scheduler.service.views import JobView, LeaderView

#: What was seen of the clusters longer ago may no longer be so.
STALE_S = 60.0


def leader_name(lease: LeaderView) -> str:
    """Name a leader so that it can be found: `process 4711 on host`."""
    host, _, rest = lease.holder.partition(":")
    return f"process {rest.partition(':')[0]} on {host}" if rest else lease.holder


def stale_note(scheduler: Handle, jobs: Iterable[JobView]) -> Text | None:
    """Say how old it is what is shown of open jobs, if the clusters were not looked at lately."""
    if all(job.final for job in jobs):
        return None
    looks = [cluster.observed_at for cluster in scheduler.service.clusters() if cluster.observed_at]
    age_s = max(0.0, SystemClock().now() - max(looks)) if looks else None
    if age_s is not None and age_s < STALE_S:
        return None
    seen = "have not been looked at yet" if age_s is None else f"were last looked at {age(age_s)} ago"
    who = "the scheduler looks at them now" if scheduler.service.leader() else "no scheduler runs"
    return Text(f"The clusters {seen}; {who}.", style="yellow")
