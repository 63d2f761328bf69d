"""Whether an environment fits the Ray version of a cluster.

A job cannot install another Ray, and old versions ignore newer options. Without this check, a pinned Ray is
downloaded in full before the cluster refuses it, and an old Ray ignores `uv` and runs the job without its
packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ray_multicluster_scheduler.environment.options import requirement_of
from ray_multicluster_scheduler.model.cluster import NO_NEEDS, RayNeeds

#: The first Ray version with each option. Every supported Ray has the options that are not listed.
SINCE: Mapping[str, tuple[int, int]] = {"image_uri": (2, 24), "uv": (2, 40), "py_executable": (2, 43)}
_OWN_PYTHON = ("conda", "image_uri", "container")
_INSTALLERS = ("pip", "uv")
#: An environment without any of these fits every Ray.
_RELEVANT_OPTIONS = frozenset({*SINCE, *_OWN_PYTHON, *_INSTALLERS})
#: `ray-default=2.9`, `conda-forge::ray-core >=2.9`.
_CONDA_RAY = re.compile(
    r"(?:\S+::)?ray(?:-(?:core|default|data|train|tune|serve|rllib|air|all))?\s*(?P<version>[=<>!~].*)"
)


def ray_needs(runtime_env: Mapping[str, Any]) -> RayNeeds:
    """Return the requirements of a normalised environment on the cluster's Ray."""
    if _RELEVANT_OPTIONS.isdisjoint(runtime_env):
        return NO_NEEDS
    return RayNeeds(
        pins=tuple(_pins(runtime_env)),
        options=tuple(option for option in SINCE if option in runtime_env),
        own_python=any(option in runtime_env for option in _OWN_PYTHON),
        own_installer=any(option in runtime_env for option in _INSTALLERS),
    )


def ray_objection(job: RayNeeds, cluster: RayNeeds, ray_version: str | None) -> str | None:
    """Say what the cluster's Ray lacks for the environments of job and cluster; None if nothing."""
    if ray_version is None or not (job or cluster):
        return None
    pins, options = job.pins, job.options
    if not job.own_python:  # a job with its own Python replaces the cluster's environment
        pins = pins or cluster.pins
        options += tuple(each for each in cluster.options if not (each == "uv" and job.own_installer))
    return _objection(pins, options, ray_version)


@lru_cache(maxsize=4096)
def _objection(pins: tuple[tuple[str, str], ...], options: tuple[str, ...], ray_version: str) -> str | None:
    try:
        version = Version(ray_version)
    except ValueError:  # also of a number that is too long for Python
        return None
    for requirement, specifier in pins:
        if not _allows(specifier, version):
            return (
                f"it runs Ray {ray_version} and the environment asks for {requirement}; a cluster's "
                "Ray cannot be changed, so leave it out"
            )
    for option in options:
        if version.release[:2] < SINCE[option]:
            since = ".".join(map(str, SINCE[option]))
            return f"it runs Ray {ray_version}, which ignores {option}: that needs Ray {since} or newer"
    return None


def _allows(specifier: str, version: Version) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except ValueError:  # there is no version with a number that is too long for Python
        return False


def _pins(runtime_env: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for installer in _INSTALLERS:
        value = runtime_env.get(installer) or ()
        yield from _pip_pins(value.get("packages", ()) if isinstance(value, Mapping) else value)
    conda = runtime_env.get("conda")
    for item in conda.get("dependencies") or () if isinstance(conda, Mapping) else ():
        if isinstance(item, Mapping):
            yield from _pip_pins(item.get("pip") or ())
        elif (match := _CONDA_RAY.fullmatch(item.strip())) and (specifier := _from_conda(match["version"])):
            yield item, specifier


def _pip_pins(items: Iterable[str]) -> Iterable[tuple[str, str]]:
    for item in items:
        if "ray" in item.lower() and (specifier := _specifier(item)):
            yield item.strip(), specifier


def _specifier(item: str) -> str | None:
    """Return the versions of Ray that a requirement allows; None if it is for another package.

    Also None for a requirement with a marker, which only the node can evaluate, or with a URL.
    """
    try:
        requirement = requirement_of(item)
    except InvalidRequirement:
        return None
    if canonicalize_name(requirement.name) != "ray" or requirement.marker or requirement.url:
        return None
    return str(requirement.specifier) or None


def _from_conda(version: str) -> str | None:
    """Return conda's `=2.9` in pip's syntax; None for syntax that only conda understands."""
    specifier = version.replace(" ", "")
    if specifier.startswith("=") and not specifier.startswith("=="):
        specifier = f"=={specifier[1:].removesuffix('.*')}.*"
    try:
        return str(SpecifierSet(specifier))
    except InvalidSpecifier:
        return None
