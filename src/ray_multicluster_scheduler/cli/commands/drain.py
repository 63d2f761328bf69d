"""`raymc drain` and `raymc undrain`: take a cluster out of service, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ray_multicluster_scheduler.cli.options.common import ClusterArgument, ConfigOption
from ray_multicluster_scheduler.cli.session import check_cluster, opened

ReasonOption = Annotated[str, typer.Option(metavar="TEXT", help="For those who ask why; `explain` shows it.")]


def drain(cluster: ClusterArgument, *, config: ConfigOption = None, reason: ReasonOption = "") -> None:
    """Send no new jobs to a cluster; what runs there may end."""
    live = _mark(config, cluster, reason, drained=True)
    typer.echo(f"{cluster} gets no new jobs; our jobs there, which may end: {live}.")


def undrain(cluster: ClusterArgument, *, config: ConfigOption = None) -> None:
    """Let a cluster have new jobs again.

    This overrides `drained: true` in the configuration.
    """
    _mark(config, cluster, "", drained=False)
    typer.echo(f"{cluster} may have new jobs again.")


def _mark(config: Path | None, cluster: str, reason: str, *, drained: bool) -> int:
    """Write the mark; return how many of our jobs are on the cluster."""
    with opened(config) as scheduler:
        check_cluster(scheduler, cluster)
        scheduler.service.set_drained(cluster, drained=drained, reason=reason)
        return sum(seen.live_jobs for seen in scheduler.service.clusters() if seen.name == cluster)
