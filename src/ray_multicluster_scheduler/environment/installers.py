"""What an environment in canonical form installs: by `pip`, by `uv`, or in the pip section of conda."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INSTALLERS = ("pip", "uv")


def installer_of(env: Mapping[str, Any]) -> str | None:
    """Return which of the two installers an environment uses."""
    return next((name for name in INSTALLERS if name in env), None)


def packages_of(env: Mapping[str, Any]) -> list[str]:
    """Return the packages of its installer."""
    value = env.get(installer_of(env) or "", [])
    packages: list[str] = value["packages"] if isinstance(value, Mapping) else value
    return packages


def settings_of(env: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else its installer is told, such as `pip_check`."""
    value = env.get(installer_of(env) or "")
    return {key: value[key] for key in value if key != "packages"} if isinstance(value, Mapping) else {}


def pip_section(env: Mapping[str, Any]) -> list[str]:
    """Return the packages that its conda mapping lets pip install."""
    conda = env.get("conda")
    dependencies = conda.get("dependencies", []) if isinstance(conda, Mapping) else []
    return [package for item in dependencies if isinstance(item, Mapping) for package in item["pip"]]
