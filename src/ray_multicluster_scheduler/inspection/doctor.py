"""Examines every cluster of a configuration: what is wrong with it, and what to do about it."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Mapping
from contextlib import AsyncExitStack

from ray_multicluster_scheduler.clock import jitter
from ray_multicluster_scheduler.cluster_health.diagnosis import Check, Evidence, Versions, diagnose
from ray_multicluster_scheduler.cluster_health.examine import examine
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.config.installed import ray_version
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.ray_api.http_connection import HttpConnection, open_connection


async def diagnose_all(
    config: Config, environ: Mapping[str, str], clock: Clock
) -> dict[str, tuple[Check, ...]]:
    """Return the checks of each cluster, by its name."""
    async with AsyncExitStack() as stack:
        examined = await asyncio.gather(
            *(_examine(spec, config, environ, clock, stack) for spec in config.clusters)
        )
    return {evidence.spec.name: diagnose(evidence) for evidence in examined}


async def _examine(
    spec: ClusterSpec, config: Config, environ: Mapping[str, str], clock: Clock, stack: AsyncExitStack
) -> Evidence:
    timeout_s = config.settings.probe_timeout_s
    connection = await stack.enter_async_context(open_connection(spec, environ, request_timeout_s=timeout_s))
    anonymous = await stack.enter_async_context(HttpConnection(spec, request_timeout_s=timeout_s))
    return await examine(
        spec,
        probe=connection.probe,
        anonymous=anonymous.probe,
        watch=ClusterWatch(
            {spec.name: connection}, clock=clock, settings=config.settings, jitter=jitter, lists_jobs=True
        ),
        token_set=bool(spec.auth_token_env and environ.get(spec.auth_token_env)),
        ours=Versions(ray=ray_version(), python=platform.python_version()),
        timeout_s=timeout_s,
        folder=config.path.resolve().parent,
    )
