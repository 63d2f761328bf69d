"""Hints about an environment that works but could be better. Pure: the caller logs them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ray_multicluster_scheduler.environment.requirements import package_name

#: Installing one of these takes minutes on each node.
LARGE = frozenset(
    {"jax", "jaxlib", "mxnet", "paddlepaddle", "pyspark", "tensorflow", "torch", "torchvision", "vllm"}
)
_PINNED = re.compile(r"===?\s*[^*\s,]+(?:\s*;.*)?$")


def environment_hints(env: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence for each problem that may cost time later; `env` is in canonical form."""
    packages = [item for item in _packages(env) if package_name(item) is not None]
    if unpinned := [item for item in packages if not _PINNED.search(item)]:
        yield (
            f"pip: {', '.join(unpinned)} {'has' if len(unpinned) == 1 else 'have'} no exact version: "
            "nodes that install on different days may differ. Write name==version"
        )
    if large := [item for item in packages if package_name(item) in LARGE]:
        yield (
            f"pip: {', '.join(large)} is large: each node needs minutes to install it the first time. "
            "A conda environment or an image that has it already starts at once"
        )
    for name in env.get("env_vars", {}):
        if (why := _without_effect(name)) is not None:
            yield f"env_vars: {name} will not take effect: {why}"


def _packages(env: Mapping[str, Any]) -> list[str]:
    value = env.get("pip", env.get("uv", []))
    packages = list(value["packages"] if isinstance(value, Mapping) else value)
    conda = env.get("conda")
    dependencies = conda.get("dependencies", []) if isinstance(conda, Mapping) else []
    return packages + [each for item in dependencies if isinstance(item, Mapping) for each in item["pip"]]


def _without_effect(name: str) -> str | None:
    if name == "CUDA_VISIBLE_DEVICES":
        return "Ray sets it for each task by the GPUs that the task asked for (num_gpus)"
    if name == "RAY_ADDRESS":
        return "a worker belongs to its own cluster, whatever this says"
    if name.startswith("RAY_") and not name.startswith(("RAY_MULTICLUSTER_", "RAY_DATA_", "RAY_TRAIN_")):
        return "Ray reads its own settings when the node is started, not when a worker is"
    return None
