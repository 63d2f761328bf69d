"""Environments that a cluster could not set up and would fail to set up again: not tried there for a while.

Whether an entry still applies is decided at each use. It no longer does after some minutes, after a restart
of the cluster, and after a change of the cluster's own environment in clusters.yaml.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec
from ray_multicluster_scheduler.model.decision import NOTHING_FAILED
from ray_multicluster_scheduler.model.environment import FailedSetup

_INSTALLER_PREFIXES = ("PIP_", "UV_", "CONDA_")
#: After this time a package may have been published, or a conda environment created.
REMEMBERED_S = 300.0
#: Limit of remembered environments per cluster; the oldest are dropped first.
MOST_REMEMBERED = 100


def failed_setup(reason: str, spec: ClusterSpec, session_name: str | None, *, now: float) -> FailedSetup:
    """Return the record of an environment that has just failed on a cluster."""
    return FailedSetup(
        reason=reason,
        until=now + REMEMBERED_S,
        session_name=session_name,
        cluster_env=setup_digest(spec.runtime_env),
    )


def still_failing(spec: ClusterSpec, snapshot: ClusterSnapshot, *, now: float) -> Mapping[str, str]:
    """Return the environments, by key, that would still fail on a cluster, with the reason for each."""
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
    """Return a digest of everything that Ray has to install; empty if there is nothing to install.

    Variables do not count, except those that tell an installer where packages come from.
    """
    to_set_up = {option: value for option, value in runtime_env.items() if option != "env_vars"}
    if not to_set_up:
        return ""
    variables = runtime_env.get("env_vars") or {}
    if for_installers := {
        name: variables[name] for name in variables if name.startswith(_INSTALLER_PREFIXES)
    }:
        to_set_up["env_vars"] = for_installers
    return sha256(json.dumps(to_set_up, sort_keys=True, default=str).encode()).hexdigest()[:16]
