"""Shell completion of ids, groups and cluster names, from the store and the configuration.

A completion has nobody to complain to: where something cannot be read, there is nothing to offer. Nobody
waits for a TAB either: the configuration is read without being checked, and the store without its library.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from ray_multicluster_scheduler.config.find import find_config, state_dir
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.service.newest import newest

#: The newest jobs are those that somebody asks about.
MOST_JOBS = 200


def complete_ids(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the newest submission ids, each with its state."""
    return _matching(((submission_id, state) for submission_id, state, _ in _newest(ctx)), incomplete)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the groups of the newest jobs."""
    groups = dict.fromkeys(group for _, _, group in _newest(ctx) if group)
    return _matching(((group, "group") for group in groups), incomplete)


def complete_clusters(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offer the configured clusters."""
    return _matching(((name, "cluster") for name in _cluster_names(ctx)), incomplete)


def _newest(ctx: typer.Context) -> list[tuple[str, str, str | None]]:
    path = _config_path(ctx)
    return [] if path is None else newest(state_dir(path, os.environ), limit=MOST_JOBS)


def _cluster_names(ctx: typer.Context) -> list[str]:
    """Return the names in either form of `clusters:`: the keys of a mapping, or the `name` of each item."""
    import yaml  # noqa: PLC0415 - a completion of something else does without it

    path = _config_path(ctx)
    try:
        clusters: Any = yaml.safe_load(path.read_text("utf-8"))["clusters"] if path else []
        names = [each["name"] for each in clusters] if isinstance(clusters, list) else list(clusters)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError):
        return []
    return [name for name in names if isinstance(name, str)]


def _config_path(ctx: typer.Context) -> Path | None:
    try:
        return find_config(ctx.params.get("config"), environ=os.environ, cwd=Path.cwd())
    except SchedulerError:
        return None


def _matching(offers: Iterable[tuple[str, str]], incomplete: str) -> list[tuple[str, str]]:
    return [(name, about) for name, about in offers if name.startswith(incomplete)]
