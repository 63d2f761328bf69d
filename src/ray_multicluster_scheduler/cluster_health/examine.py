"""Collects the evidence for `diagnosis.py`: addresses, ports and answers of one cluster, concurrently.

The Ray Client port gets a TCP connection only: a session would start a process on the cluster.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Collection
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from ray_multicluster_scheduler.cluster_health.diagnosis import Evidence, Versions
from ray_multicluster_scheduler.cluster_health.tcp_port import head_ports_here, head_state
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
    lost_after_s: float,
    folder: Path,
) -> Evidence:
    """Collect the evidence about one cluster, in about `timeout_s` at most.

    `anonymous` is a probe of the same cluster without a token, `watch` includes this cluster, and `folder`
    is the directory of clusters.yaml.
    """
    hosts = dict.fromkeys([urlsplit(spec.dashboard).hostname or "", spec.head[0]])
    answer = asyncio.create_task(_answer_or_error(probe.version()))

    async def head_ports() -> Collection[int]:
        answered = await answer
        session_name = None if isinstance(answered, ClusterError) else answered.session_name
        return await asyncio.to_thread(head_ports_here, session_name) if session_name else ()

    version, without_token, snapshot, (dashboard_port, client_port), addresses = await asyncio.gather(
        answer,
        _answer_or_error(anonymous.version()),
        watch.probe(spec.name),
        head_state(spec, head_ports, timeout_s=timeout_s),
        asyncio.gather(*(resolve(name, timeout_s=timeout_s) for name in hosts)),
    )
    inventory = watch.inventory(spec.name)
    return Evidence(
        spec=spec,
        addresses=dict(zip(hosts, addresses, strict=True)),
        version=version,
        anonymous=without_token,
        token_set=token_set,
        snapshot=snapshot,
        jobs_listed=None if inventory is None else inventory.remembered,
        dashboard_port=dashboard_port,
        client_port=client_port,
        lost_after_s=lost_after_s,
        ours=ours,
        packed={str(path): path.exists() for path in _directories(spec, folder)},
    )


def _directories(spec: ClusterSpec, folder: Path) -> list[Path]:
    """Return the local paths in the cluster's own environment, which are packed and sent."""
    env = spec.runtime_env
    locations = (env.get("working_dir"), *(env.get("py_modules") or ()))
    return [local_path(folder, each) for each in locations if isinstance(each, str) and "://" not in each]


async def resolve(host: str, *, timeout_s: float) -> tuple[str, ...]:
    """Return the IP addresses of a host; empty if it cannot be resolved in time."""
    lookup = asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    try:
        infos = await asyncio.wait_for(lookup, timeout_s)
    except (OSError, UnicodeError, asyncio.TimeoutError):
        return ()
    return tuple(dict.fromkeys(str(address[0]) for *_, address in infos))


async def _answer_or_error(call: Awaitable[T]) -> T | ClusterError:
    try:
        return await call
    except ClusterError as error:
        return error
