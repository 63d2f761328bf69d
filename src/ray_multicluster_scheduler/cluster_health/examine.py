"""Collects what `diagnosis.py` judges: names, ports and answers of one cluster, all at once.

The Ray Client port is only connected to: a session there would start a process on the cluster.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from ray_multicluster_scheduler.cluster_health.diagnosis import Evidence, Versions
from ray_multicluster_scheduler.cluster_health.tcp_port import knock
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.packages.requirement_files import local_path
from ray_multicluster_scheduler.ports import ClusterProbe

T = TypeVar("T")


async def examine(
    spec: ClusterSpec,
    *,
    probe: ClusterProbe,
    anonymous: ClusterProbe,
    watch: ClusterWatch,
    token_set: bool,
    ours: Versions,
    timeout_s: float,
    folder: Path,
) -> Evidence:
    """Look at one cluster from every side, in about `timeout_s` at most.

    `anonymous` is the same cluster without a token, `watch` one that has the cluster under its name, `folder`
    that of clusters.yaml.
    """
    host, port = spec.head
    hosts = dict.fromkeys([urlsplit(spec.dashboard).hostname or "", host])
    version, without_token, snapshot, door, found = await asyncio.gather(
        _answer_or_error(probe.version()),
        _answer_or_error(anonymous.version()),
        watch.probe(spec.name),
        knock(host, port, timeout_s=timeout_s),
        asyncio.gather(*(resolve(name, timeout_s=timeout_s) for name in hosts)),
    )
    inventory = watch.inventory(spec.name)
    return Evidence(
        spec=spec,
        addresses=dict(zip(hosts, found, strict=True)),
        version=version,
        anonymous=without_token,
        token_set=token_set,
        snapshot=snapshot,
        jobs_listed=None if inventory is None else inventory.remembered,
        client_door=door,
        ours=ours,
        packed={str(path): path.exists() for path in _directories(spec, folder)},
    )


def _directories(spec: ClusterSpec, folder: Path) -> list[Path]:
    """Return what of this machine is sent along with the cluster's own environment."""
    env = spec.runtime_env
    named = (env.get("working_dir"), *(env.get("py_modules") or ()))
    return [local_path(folder, each) for each in named if isinstance(each, str) and "://" not in each]


async def resolve(host: str, *, timeout_s: float) -> tuple[str, ...]:
    """Return the IP addresses of a host, or nothing when it has none (in time)."""
    lookup = asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.wait_for(lookup, timeout_s)
    except (OSError, UnicodeError, asyncio.TimeoutError):
        return ()
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


async def _answer_or_error(call: Awaitable[T]) -> T | ClusterError:
    try:
        return await call
    except ClusterError as error:
        return error
