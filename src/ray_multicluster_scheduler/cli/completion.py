"""Shell completion of ids, groups and cluster names, from the store and the configuration.

A completion has nobody to complain to: where something cannot be read, there is nothing to offer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import typer

from ray_multicluster_scheduler.config import find_config, load_config
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.runtime import state_dir
from ray_multicluster_scheduler.store import open_store

#: The newest jobs are those that somebody asks about.
MOST_JOBS = 200


def complete_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the newest submission ids, each with its state."""
    return _matching(((job.submission_id, job.state.value) for job in _newest_jobs(ctx)), incomplete)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the groups of the newest jobs."""
    groups = dict.fromkeys(job.spec.group for job in _newest_jobs(ctx) if job.spec.group)
    return _matching(((group, "group") for group in groups), incomplete)


def complete_clusters(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the configured clusters, each with its address."""
    try:
        clusters = load_config(_config_path(ctx)).clusters
    except SchedulerError:
        return []
    return _matching(((spec.name, spec.dashboard) for spec in clusters), incomplete)


def _newest_jobs(ctx: typer.Context) -> tuple[Job, ...]:
    try:
        with closing(open_store(state_dir(_config_path(ctx), os.environ), create=False)) as store:
            return store.list_jobs(limit=MOST_JOBS)
    except SchedulerError:
        return ()


def _config_path(ctx: typer.Context) -> Path:
    return find_config(ctx.params.get("config"), environ=os.environ, cwd=Path.cwd())


def _matching(offers: Iterable[tuple[str, str]], incomplete: str) -> list[tuple[str, str]]:
    return [(name, about) for name, about in offers if name.startswith(incomplete)]
