"""Shell completion of ids, groups and cluster names, from the store and the configuration, or from a server.

A completion has nobody to complain to: where something cannot be read, there is nothing to offer. Nobody
waits for a TAB either: the configuration is read without being checked, the store without its library, and a
server has a moment to answer.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from ray_multicluster_scheduler.cli import lazy_imports
from ray_multicluster_scheduler.config.find import CONFIG_VARIABLE, find_config, login_path, state_dir
from ray_multicluster_scheduler.environment.options import ADDRESS_VAR
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.model.states import JobState

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.api import Service

T = TypeVar("T")

#: The newest jobs are those that somebody asks about.
MOST_JOBS = 200
#: How long a server may take.
ASK_S = 1.0
#: A clusters.yaml that names a server, recognised without reading YAML.
_NAMES_A_SERVER = re.compile(r"^[ \t]+address[ \t]*:", re.MULTILINE)


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


def complete_states(incomplete: str) -> list[str]:
    """Offer the states of jobs; after a comma too."""
    before, comma, word = incomplete.rpartition(",")
    return [
        f"{before}{comma}{name}" for name in map(str.lower, JobState.__members__) if name.startswith(word)
    ]


def _newest(ctx: typer.Context) -> list[tuple[str, str, str | None]]:
    path = _config_path(ctx)
    if _is_remote(ctx, path):
        return _ask(ctx, _newest_of)
    if path is None:
        return []
    from ray_multicluster_scheduler.service import newest_jobs  # noqa: PLC0415 - no server is named

    return newest_jobs(state_dir(path, os.environ), limit=MOST_JOBS)


def _newest_of(service: Service) -> list[tuple[str, str, str | None]]:
    jobs = service.list_jobs(lazy_imports.JobQuery(limit=MOST_JOBS)).jobs
    return [(job.submission_id, job.state.value, job.group) for job in jobs]


def _is_remote(ctx: typer.Context, path: Path | None) -> bool:
    named = ctx.params.get("config") or os.environ.get(CONFIG_VARIABLE)
    if os.environ.get(ADDRESS_VAR) or (not named and login_path(os.environ).is_file()):
        return True
    try:
        return path is not None and _NAMES_A_SERVER.search(path.read_text("utf-8")) is not None
    except (OSError, UnicodeDecodeError):
        return False


def _ask(ctx: typer.Context, question: Callable[[Service], list[T]]) -> list[T]:
    """Return what a server answers; nothing where none is named, or it does not answer in time."""
    answers: list[T] = []

    def ask() -> None:
        with suppress(SchedulerError):
            scheduler = lazy_imports.open_scheduler(ctx.params.get("config"))
            try:
                if isinstance(scheduler, lazy_imports.RemoteScheduler):
                    answers.extend(question(scheduler.service))
            finally:
                scheduler.stop()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ASK_S)
    return list(answers)


def _cluster_names(ctx: typer.Context) -> list[str]:
    """Return the names in either form of `clusters:`: the keys of a mapping, or the `name` of each item."""
    path = _config_path(ctx)
    if _is_remote(ctx, path):
        return _ask(ctx, lambda service: [cluster.name for cluster in service.clusters()])
    import yaml  # noqa: PLC0415 - a completion of something else does without it

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
