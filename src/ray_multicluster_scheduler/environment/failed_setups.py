"""Environments that a cluster could not set up, and will not next time: it is not asked again for a while.

Whether they are still a reason is decided anew each time: after some minutes, after a restart of the cluster,
and after a change of its own part in clusters.yaml it may be different.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec
from ray_multicluster_scheduler.model.decision import NOTHING_FAILED
from ray_multicluster_scheduler.model.environment import FailedSetup

_FOR_INSTALLERS = ("PIP_", "UV_", "CONDA_")
#: A package may be published and a conda environment be made meanwhile.
REMEMBERED_S = 300.0
#: More environments than this are not remembered for one cluster; the oldest go first.
MOST_REMEMBERED = 100


def failed_setup(reason: str, spec: ClusterSpec, session_name: str | None, *, now: float) -> FailedSetup:
    """Return what is remembered of an environment that has just failed on a cluster."""
    return FailedSetup(
        reason=reason,
        until=now + REMEMBERED_S,
        session_name=session_name,
        cluster_env=setup_digest(spec.runtime_env),
    )


def still_failing(spec: ClusterSpec, snapshot: ClusterSnapshot, *, now: float) -> Mapping[str, str]:
    """Return the environments, by key, that a cluster need not be asked for now, with the reason for each."""
    if not snapshot.failed_setups:
        return NOTHING_FAILED
    cluster_env = setup_digest(spec.runtime_env)
    return {
        key: f"{failed.reason} (tried there again {REMEMBERED_S / 60:g} minutes after that, or when the "
        "cluster has changed)"
        for key, failed in snapshot.failed_setups.items()
        if failed.until > now
        and failed.cluster_env == cluster_env
        and failed.session_name == snapshot.session_name
    }


def setup_digest(runtime_env: Mapping[str, Any]) -> str:
    """Return a text that is equal for environments with the same to set up; empty: nothing.

    Variables are not, but for those that tell an installer where packages come from.
    """
    to_set_up = {option: value for option, value in runtime_env.items() if option != "env_vars"}
    if not to_set_up:
        return ""
    variables = runtime_env.get("env_vars") or {}
    if heeded := {name: variables[name] for name in variables if name.startswith(_FOR_INSTALLERS)}:
        to_set_up["env_vars"] = heeded
    return sha256(json.dumps(to_set_up, sort_keys=True, default=str).encode()).hexdigest()[:16]
