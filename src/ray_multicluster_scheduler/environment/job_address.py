"""Which jobs get the address of the server and a token for it.

A job gets both if the address is valid on its cluster and neither the job nor the cluster sets its own.
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

    A loopback address would name the wrong machine on a remote cluster, so it is left out there. An address
    that the cluster or the job sets itself wins.
    """
    return tuple(_with_address(spec, address) if address else spec for spec in clusters)


def with_token(runtime_env: Mapping[str, Any], target: ClusterSpec, token: str) -> Mapping[str, Any]:
    """Return the environment of a job with its token, if the address in it comes from the cluster's.

    An address that the job sets itself may be that of another server, which must not get the token. A token
    or token file that the job or its cluster sets is kept.
    """
    env_vars = runtime_env.get("env_vars", {})
    address = target.runtime_env.get("env_vars", {}).get(ADDRESS_VAR)
    if (
        address is None
        or env_vars.get(ADDRESS_VAR) != address
        or {TOKEN_VAR, TOKEN_FILE_VAR} & env_vars.keys()
    ):
        return runtime_env
    return {**runtime_env, "env_vars": {**env_vars, TOKEN_VAR: token}}


def _with_address(spec: ClusterSpec, address: str) -> ClusterSpec:
    if _LOOPBACK.match(address) and not _LOOPBACK.match(spec.dashboard):
        return spec
    env_vars = {ADDRESS_VAR: address, **spec.runtime_env.get("env_vars", {})}
    return replace(spec, runtime_env={**spec.runtime_env, "env_vars": env_vars})
