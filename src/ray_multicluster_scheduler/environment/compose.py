"""The `runtime_env` that is sent to a cluster: a pure function of the cluster's environment and the job's.

It is computed after the cluster is chosen, from the arguments alone, so no value of an earlier placement can
be left over. The arguments are never changed, and the result shares no objects with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray_multicluster_scheduler.environment.env_vars import CLUSTER_VAR, layer_env_vars
from ray_multicluster_scheduler.environment.installers import (
    INSTALLERS,
    installer_of,
    packages_of,
    pip_section,
    settings_of,
)
from ray_multicluster_scheduler.environment.options import OPTIONS, ReadFile, nearest
from ray_multicluster_scheduler.environment.overlay import add_overlay, overlay_problem
from ray_multicluster_scheduler.environment.requirements import merge_requirements
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv

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
            problems.append(f"{where}: unknown option {option!r}; {nearest(str(option), public)}")
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
    environment (`environment/overlay.py`). Without it that combination is refused.
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
