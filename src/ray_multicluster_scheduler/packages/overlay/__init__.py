"""pip packages on top of a named conda environment: the code that does this on the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.environment.compose import has_overlay
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.tree import Source

#: The code for the nodes. `sitecustomize` is for the program of a job, the other module for workers too.
NODE_CODE = Path(__file__).parent / "node"


def with_overlay_code(runtime_env: Mapping[str, Any], packages: PackageStore) -> dict[str, Any]:
    """Return an environment with the code that its overlay needs; without an overlay, return it unchanged."""
    if not has_overlay(runtime_env):
        return dict(runtime_env)
    source = Source(root=NODE_CODE, excludes=("__pycache__",), use_gitignore=False)
    module = f"gcs://{packages.add_tree(source)}"
    others = [each for each in runtime_env.get("py_modules", ()) if each != module]
    return {**runtime_env, "py_modules": [*others, module]}
