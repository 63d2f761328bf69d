"""Whose value each part of a composed environment is: for people who wonder where it comes from.

Nothing is composed again: the environment that was sent is compared with what the cluster and the job say.
The cluster may say something else today than when the job was sent. So what the job does not say, and the
scheduler does not add, is the cluster's. Only names are returned, never values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ray_multicluster_scheduler.environment.compose import without_replaced_options
from ray_multicluster_scheduler.environment.env_vars import ADDRESS_VAR, RESERVED, SEARCH_PATHS, TOKEN_VAR
from ray_multicluster_scheduler.environment.installers import (
    INSTALLERS,
    packages_of,
    pip_section,
    settings_of,
)
from ray_multicluster_scheduler.environment.overlay import OVERLAY_VAR, has_overlay

CLUSTER, JOB, BOTH, SCHEDULER = "cluster", "job", "both", "scheduler"
#: The variables of a runtime_env are named behind this: `env_vars.HOME`.
VARIABLE = "env_vars."
#: A server adds these, where neither the cluster nor the job sets them.
_ADDED = frozenset({ADDRESS_VAR, TOKEN_VAR})
#: With an overlay, its code is added to these.
_OVERLAY_OPTIONS = frozenset({"worker_process_setup_hook", "py_modules"})


def origins(
    sent: Mapping[str, Any], cluster_env: Mapping[str, Any], job_env: Mapping[str, Any]
) -> dict[str, str]:
    """Return for each option and each variable that was sent whose it is; all three in canonical form."""
    cluster = without_replaced_options(cluster_env, job_env)
    found = {option: _of_option(option, sent, cluster, job_env) for option in sent if option != "env_vars"}
    variables, theirs, own = (env.get("env_vars") or {} for env in (sent, cluster, job_env))
    overlay = has_overlay(sent)
    for name, value in variables.items():
        added = name in RESERVED or (overlay and name == OVERLAY_VAR)
        found[VARIABLE + name] = SCHEDULER if added else _of_variable(name, value, theirs, own)
    return found


def _of_variable(name: str, value: str, cluster: Mapping[str, str], job: Mapping[str, str]) -> str:
    if name not in job:
        return SCHEDULER if name in _ADDED and name not in cluster else CLUSTER
    # `${PATH}` in a search path of the job stands for the cluster's directories.
    return BOTH if name in SEARCH_PATHS and value != job[name] else JOB


def _of_option(
    option: str, sent: Mapping[str, Any], cluster: Mapping[str, Any], job: Mapping[str, Any]
) -> str:
    if option in INSTALLERS:
        by_settings = _by_name(settings_of(sent), settings_of(job))
        return _one_word(by_settings | _by_package(packages_of(sent), cluster, job))
    if option == "conda":
        by_whom = {JOB} if "conda" in job else {CLUSTER}
        return _one_word(by_whom | _by_package(pip_section(sent), cluster, job))
    if option == "config" and option in job:
        return _one_word({JOB} | _by_name(sent[option], job[option]))
    if option in job:
        return JOB
    added = option in _OVERLAY_OPTIONS and option not in cluster and has_overlay(sent)
    return SCHEDULER if added else CLUSTER


def _by_name(sent: Iterable[str], job: Mapping[str, Any]) -> set[str]:
    """Tell who contributes to a mapping in which the job's entries replace the cluster's."""
    return {JOB if name in job else CLUSTER for name in sent}


def _by_package(sent: Iterable[str], cluster: Mapping[str, Any], job: Mapping[str, Any]) -> set[str]:
    """Tell who contributes to a list of packages. What both ask for in the same words is from both."""
    theirs = {*packages_of(cluster), *pip_section(cluster)}
    own = {*packages_of(job), *pip_section(job)}
    by_whom = {JOB for item in sent if item in own}
    return by_whom | {CLUSTER for item in sent if item in theirs or item not in own}


def _one_word(by_whom: set[str]) -> str:
    return BOTH if len(by_whom) > 1 else next(iter(by_whom))
