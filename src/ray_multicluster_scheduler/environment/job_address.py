"""Which jobs are told where the server is, and get a token for it.

Those on clusters from which the address can mean this server, and that were told it by nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ray_multicluster_scheduler.environment.env_vars import ADDRESS_VAR, TOKEN_FILE_VAR, TOKEN_VAR
from ray_multicluster_scheduler.model.cluster import ClusterSpec

_LOOPBACK = re.compile(r"https?://(localhost|127\.[0-9.]+|\[::1\])(?=[:/]|$)", re.IGNORECASE)


def with_address(clusters: Iterable[ClusterSpec], address: str | None) -> tuple[ClusterSpec, ...]:
    """Return the clusters with the server's address among the variables of their environments.

    An address of this machine means another machine on a cluster that is elsewhere: it is not told there.
    What a cluster or a job says itself goes before.
    """
    return tuple(_told(spec, address) if address else spec for spec in clusters)


def with_token(runtime_env: Mapping[str, Any], target: ClusterSpec, token: str) -> Mapping[str, Any]:
    """Return the environment of a job with its token, where the cluster's own says the address.

    An address that the job says itself may be another server's, which must not get it. Whoever gives a token
    or the name of its file, the job or its cluster, means that one.
    """
    env_vars = runtime_env.get("env_vars", {})
    told = target.runtime_env.get("env_vars", {}).get(ADDRESS_VAR)
    if told is None or env_vars.get(ADDRESS_VAR) != told or {TOKEN_VAR, TOKEN_FILE_VAR} & env_vars.keys():
        return runtime_env
    return {**runtime_env, "env_vars": {**env_vars, TOKEN_VAR: token}}


def _told(spec: ClusterSpec, address: str) -> ClusterSpec:
    if _LOOPBACK.match(address) and not _LOOPBACK.match(spec.dashboard):
        return spec
    env_vars = {ADDRESS_VAR: address, **spec.runtime_env.get("env_vars", {})}
    return replace(spec, runtime_env={**spec.runtime_env, "env_vars": env_vars})
