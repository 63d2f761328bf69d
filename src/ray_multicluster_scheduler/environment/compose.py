"""The `runtime_env` that is sent to a cluster: a pure function of the cluster's environment and the job's.

It is computed after the cluster is chosen, from the arguments alone, so no value of an earlier placement can
be left over. The arguments are never changed, and the result shares no objects with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ray_multicluster_scheduler.environment.options import (
    ADDRESS_VAR,
    CLUSTER_VAR,
    INSTALLERS,
    OPTIONS,
    RESERVED,
    SEARCH_PATHS,
    TOKEN_FILE_VAR,
    TOKEN_VAR,
    ReadFile,
    installer_of,
    layer_env_vars,
    merge_requirements,
    packages_of,
    pip_section,
    settings_of,
)
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.result import RESULT_VAR
from ray_multicluster_scheduler.text import did_you_mean

# pip packages on top of a named conda environment, a combination that Ray itself refuses.
#
# The named environment is not changed: the packages are installed into a directory beside it, on each
# node, and that directory goes first on `sys.path`. The code for this is sent with the job; it lives in
# `packages/overlay` and `packages/to_cluster.py`. What to send is decided here.

#: The packages to install, as JSON; read on the node.
OVERLAY_VAR = "RAYMC_OVERLAY"
OVERLAY_HOOK = "raymc_overlay.install"
#: What Ray makes of a `worker_process_setup_hook`: the variable that its workers read.
HOOK_VAR = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"


def overlay_problem(env: Mapping[str, Any]) -> str | None:
    """Return why pip packages cannot be added to the named conda environment of `env`; None if they can."""
    if "uv" in env:
        return "uv cannot be laid over it; write the packages under pip"
    if "worker_process_setup_hook" in env:
        return (
            "its packages are installed by a worker_process_setup_hook, and there is one already; remove it"
        )
    pip = env["pip"]
    settings = [name for name in ("pip_check", "pip_version") if isinstance(pip, Mapping) and pip.get(name)]
    if settings:
        return f"{', '.join(settings)}: the pip of that environment is used as it is; leave this out"
    return None


def add_overlay(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return `env` with its `pip` packages turned into an overlay."""
    pip = env["pip"]
    packages = pip["packages"] if isinstance(pip, Mapping) else pip
    options = pip.get("pip_install_options", []) if isinstance(pip, Mapping) else []
    request = json.dumps({"packages": packages, "options": options}, sort_keys=True)
    rest = {option: value for option, value in env.items() if option != "pip"}
    env_vars = {**env.get("env_vars", {}), OVERLAY_VAR: request}
    return {**rest, "env_vars": env_vars, "worker_process_setup_hook": OVERLAY_HOOK}


def remove_overlay(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return `env` as it was before `add_overlay`, for another cluster. The code sent with it may stay."""
    if not has_overlay(env):
        return dict(env)
    env_vars = dict(env["env_vars"])
    request = json.loads(env_vars.pop(OVERLAY_VAR))
    env_vars.pop(HOOK_VAR, None)
    packages, options = request["packages"], request["options"]
    pip = {"packages": packages, "pip_install_options": options} if options else packages
    rest = {option: value for option, value in env.items() if option != "worker_process_setup_hook"}
    return {**rest, "env_vars": env_vars, "pip": pip}


def has_overlay(env: Mapping[str, Any]) -> bool:
    """Tell whether an environment was made by `add_overlay`."""
    return env.get("worker_process_setup_hook") == OVERLAY_HOOK


def for_ray_client(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return `env` for a session of Ray Client, which would ignore its `worker_process_setup_hook`."""
    if not isinstance(hook := env.get("worker_process_setup_hook"), str):
        return dict(env)
    return {**env, "env_vars": {**env.get("env_vars", {}), HOOK_VAR: hook}}


IMAGES = ("image_uri", "container")
#: The only options that Ray accepts beside a container image.
_FITS_AN_IMAGE = frozenset({"env_vars", "config"})


def normalise(
    runtime_env: Mapping[str, Any] | None, *, where: str, read: ReadFile | None = None
) -> dict[str, Any]:
    """Return a user's `runtime_env` in canonical form, or raise an error that says what to write instead.

    In the result `env_vars` is a mapping of text, `pip` and `uv` are lists (or mappings when they carry
    options), and `conda` is a name or a mapping. Options that are None or empty are left out. `where` starts
    each message ("cluster 'mac': runtime_env"). Without `read`, options that name a local file are refused.
    """
    if runtime_env is None:
        return {}
    if not isinstance(runtime_env, Mapping):
        raise InvalidRuntimeEnv(f"{where}: must be a mapping, not {type(runtime_env).__name__}")
    if not runtime_env:
        return {}
    parsed: dict[str, Any] = {}
    problems: list[str] = []
    for option, value in runtime_env.items():
        if option not in OPTIONS:
            public = [name for name in OPTIONS if not name.startswith("_")]
            problems.append(f"{where}: unknown option {option!r}; {did_you_mean(str(option), public)}")
        elif value is not None:
            try:
                parsed[option] = OPTIONS[option](value, read)
            except InvalidRuntimeEnv as problem:
                problems.append(f"{where}: {option}: {problem}")
    if problems:
        raise InvalidRuntimeEnv("\n".join(problems))
    parsed = {option: value for option, value in parsed.items() if value is not None}
    _check_together(parsed, where, overlay=True)
    return parsed


def compose(
    cluster_env: Mapping[str, Any] | None,
    job_env: Mapping[str, Any] | None,
    *,
    identity: Mapping[str, str],
    overlay: bool = False,
) -> dict[str, Any]:
    """Return the runtime_env to send: the cluster's, overridden by the job's, plus the `identity` variables.

    `overlay` means that the caller also sends the code that installs pip packages on top of a named conda
    environment (`environment/compose.py`). Without it that combination is refused.
    docs/environments.md has a table of what happens to each option.
    """
    where = f"cluster {identity[CLUSTER_VAR]!r}" if CLUSTER_VAR in identity else "the cluster"
    cluster = normalise(cluster_env, where=f"{where}: runtime_env")
    job = normalise(job_env, where="the job's runtime_env")
    cluster = without_replaced_options(cluster, job)
    _check_no_local_path(cluster, f"{where}: runtime_env")

    layers = {**cluster, **job}
    composed = {option: value for option, value in layers.items() if option not in INSTALLERS}
    composed |= _layer_packages(cluster, job)
    if "config" in cluster and "config" in job:
        composed["config"] = {**cluster["config"], **job["config"]}
    _check_together(composed, f"{where} with this job's runtime_env", overlay=overlay)
    env_vars = {**layer_env_vars(cluster.get("env_vars", {}), job.get("env_vars", {})), **identity}
    if env_vars:
        composed["env_vars"] = env_vars
    if "pip" in composed and isinstance(composed.get("conda"), str):
        return add_overlay(composed)
    _move_packages_into_conda(composed, cluster, job)
    return composed


def without_replaced_options(cluster: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the options that the job sets itself, and the cluster's Python if the job brings its own."""
    replaced = job.keys() - {"env_vars", "config", *INSTALLERS}
    if any(image in job for image in IMAGES):
        replaced |= cluster.keys() - _FITS_AN_IMAGE
    elif "conda" in job:
        replaced |= {*IMAGES, "py_executable"}
        if isinstance(job["conda"], str):  # a named environment accepts no packages from the cluster
            replaced |= {*INSTALLERS}
    return {option: value for option, value in cluster.items() if option not in replaced}


def _check_no_local_path(cluster: Mapping[str, Any], where: str) -> None:
    """Refuse local directories: those of a job are packed at submission, those of a cluster never."""
    for option in ("working_dir", "py_modules"):
        value = cluster.get(option, [])
        if not all("://" in location for location in ([value] if isinstance(value, str) else value)):
            raise InvalidRuntimeEnv(
                f"{where}: {option}: Ray takes no plain path here. Write the URI of an archive, or "
                "local:///path for a directory that is on every node (Ray 2.60); or give it with the job, "
                "whose directories are packed and sent"
            )


def _layer_packages(cluster: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    """Return one `pip` or `uv` option with the packages of both; the job's installer wins."""
    installer = installer_of(job) or installer_of(cluster)
    if installer is None:
        return {}
    packages = merge_requirements(packages_of(cluster), packages_of(job))
    settings = settings_of(job)
    if installer in cluster and "conda" not in job:
        settings = {**settings_of(cluster), **settings}
    return {installer: {"packages": packages, **settings} if settings else packages}


def _move_packages_into_conda(
    composed: dict[str, Any], cluster: Mapping[str, Any], job: Mapping[str, Any]
) -> None:
    """Move `pip` into the pip section of a conda mapping: Ray accepts both only in this form."""
    installer = installer_of(composed)
    if installer is None or "conda" not in composed:
        return
    section: list[str] = []
    for env in (cluster, job):  # the weaker first; within one, its `pip` list overrides the section
        section = merge_requirements(section, merge_requirements(pip_section(env), packages_of(env)))
    others = [item for item in composed["conda"].get("dependencies", []) if isinstance(item, str)]
    composed["conda"] = {**composed["conda"], "dependencies": [*others, {"pip": section}]}
    del composed[installer]


def _check_together(env: Mapping[str, Any], where: str, *, overlay: bool) -> None:
    """Refuse options that Ray does not accept together; the message names the alternatives."""
    for image in IMAGES:
        if image in env and (others := sorted(env.keys() - _FITS_AN_IMAGE - {image})):
            raise InvalidRuntimeEnv(
                f"{where}: {image} brings its own Python and files, so Ray takes only env_vars and config "
                f"beside it, not {', '.join(others)}. Build them into the image, or use conda instead of it"
            )
    if all(name in env for name in INSTALLERS):
        raise InvalidRuntimeEnv(f"{where}: pip and uv are two installers; put all packages under one of them")
    if (installer := installer_of(env)) and "conda" in env:
        _check_packages_with_conda(env, installer, where, overlay=overlay)


def _check_packages_with_conda(env: Mapping[str, Any], installer: str, where: str, *, overlay: bool) -> None:
    """Refuse packages that cannot be combined with conda: a named environment needs an overlay."""
    if isinstance(env["conda"], str):
        problem = overlay_problem(env) if overlay else "only jobs and pipelines can; tasks and actors cannot"
        if problem is None:
            return
        raise InvalidRuntimeEnv(
            f"{where}: {installer} cannot add packages to the conda environment {env['conda']!r}: {problem}. "
            f"Or install them into it on the cluster and leave {installer} out; or write conda as a mapping, "
            "which Ray builds: {'dependencies': ['python=3.10', {'pip': ['pandas']}]}"
        )
    # Ray's own client always writes `pip_check: false`: a setting that is switched off requests nothing.
    if settings := [name for name, value in settings_of(env).items() if value]:
        raise InvalidRuntimeEnv(
            f"{where}: {', '.join(settings)}: with a conda mapping it is conda that installs packages, so "
            f"these have no effect. Write {installer} as a plain list, or leave conda out"
        )


# Whose value each part of a composed environment is: for people who wonder where it comes from.
#
# Nothing is composed again: the environment that was sent is compared with what the cluster and the job say.
# The cluster may say something else today than when the job was sent. So what the job does not say, and the
# scheduler does not add, is the cluster's. Only names are returned, never values.


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


# Which jobs get the address of the server and a token for it.
#
# A job gets both if the address is valid on its cluster and neither the job nor the cluster sets its own.


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


def with_result_place(runtime_env: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return the environment of a job with the path of the file in which it may leave a result."""
    return {**runtime_env, "env_vars": {**runtime_env.get("env_vars", {}), RESULT_VAR: place}}


def _with_address(spec: ClusterSpec, address: str) -> ClusterSpec:
    if _LOOPBACK.match(address) and not _LOOPBACK.match(spec.dashboard):
        return spec
    env_vars = {ADDRESS_VAR: address, **spec.runtime_env.get("env_vars", {})}
    return replace(spec, runtime_env={**spec.runtime_env, "env_vars": env_vars})
