"""Which jobs are told where the server is: those on clusters from which that address can mean it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.policy.env_vars import ADDRESS_VAR

_LOOPBACK = re.compile(r"https?://(localhost|127\.[0-9.]+|\[::1\])(?=[:/]|$)", re.IGNORECASE)


def with_address(clusters: Iterable[ClusterSpec], address: str | None) -> tuple[ClusterSpec, ...]:
    """Return the clusters with the server's address among the variables of their environments.

    An address of this machine means another machine on a cluster that is elsewhere: it is not told there.
    What a cluster or a job says itself goes before.
    """
    return tuple(_told(spec, address) if address else spec for spec in clusters)


def _told(spec: ClusterSpec, address: str) -> ClusterSpec:
    if _LOOPBACK.match(address) and not _LOOPBACK.match(spec.dashboard):
        return spec
    env_vars = {ADDRESS_VAR: address, **spec.runtime_env.get("env_vars", {})}
    return replace(spec, runtime_env={**spec.runtime_env, "env_vars": env_vars})
