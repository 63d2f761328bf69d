"""Where the configuration is looked for, and where the product keeps its own files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HOME_VARIABLE = "RAY_MULTICLUSTER_HOME"


def home_dir(environ: Mapping[str, str]) -> Path:
    """Return the root of everything the product writes: `$RAY_MULTICLUSTER_HOME` or `~/.ray_multicluster`."""
    return Path(environ.get(HOME_VARIABLE) or "~/.ray_multicluster").expanduser().absolute()
