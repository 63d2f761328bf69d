"""Hints about an environment that works but could be better. Pure: the caller logs them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ray_multicluster_scheduler.environment.requirements import is_below, package_name

#: Installing one of these takes minutes on each node.
LARGE = frozenset(
    {"jax", "jaxlib", "mxnet", "paddlepaddle", "pyspark", "tensorflow", "torch", "torchvision", "vllm"}
)
#: The first versions that work beside numpy 2. Earlier ones take any numpy, and then cannot be imported.
FOR_NUMPY_2 = {"pandas": "2.2.2", "scikit-learn": "1.4.2", "scipy": "1.13.0"}
#: The last numpy 1, and a pyarrow that takes it: Ray imports the pyarrow of the node in every worker.
NUMPY_1 = "numpy==1.26.4 and pyarrow==17.0.0"
_VERSION = re.compile(r"\s*[^*\s,]+\s*")


def environment_hints(env: Mapping[str, Any]) -> Iterator[str]:
    """Yield one sentence for each problem that may cost time later; `env` is in canonical form."""
    packages = packages_of(env)
    if unpinned := [item for item in packages if not _is_pinned(item)]:
        yield (
            f"pip: {', '.join(unpinned)} {'has' if len(unpinned) == 1 else 'have'} no exact version: "
            "nodes that install on different days may differ. Write name==version"
        )
    if large := [item for item in packages if package_name(item) in LARGE]:
        yield (
            f"pip: {', '.join(large)} is large: each node needs minutes to install it the first time. "
            "A conda environment or an image that has it already starts at once"
        )
    if older := for_numpy_1(packages):
        yield (
            f"pip: {', '.join(older)} {'was' if len(older) == 1 else 'were'} built for numpy 1 and cannot be "
            f"imported beside numpy 2, which the nodes may have. Take later ones, or add {NUMPY_1}"
        )
    for name in env.get("env_vars", {}):
        if name == "CUDA_VISIBLE_DEVICES":
            yield (
                f"env_vars: {name} is seen by tasks without GPUs only. For one that asks for some (num_gpus) "
                "Ray sets it to those that the task gets; older versions of Ray empty it for the others"
            )
        elif (why := _without_effect(name)) is not None:
            yield f"env_vars: {name} will not take effect: {why}"


def _is_pinned(item: str) -> bool:
    _, equals, version = item.partition(";")[0].rpartition("==")
    return bool(equals) and _VERSION.fullmatch(version) is not None


def for_numpy_1(packages: Iterable[str]) -> list[str]:
    """Return the items whose versions were built for numpy 1, unless the list keeps numpy there."""
    names = {item: package_name(item) for item in packages}
    if any(name == "numpy" and is_below(item, "2") for item, name in names.items()):
        return []
    return [item for item, name in names.items() if name in FOR_NUMPY_2 and is_below(item, FOR_NUMPY_2[name])]


def packages_of(env: Mapping[str, Any]) -> list[str]:
    """Return what pip installs for an environment, be it by itself, by uv or by conda."""
    value = env.get("pip", env.get("uv", []))
    items = list(value["packages"] if isinstance(value, Mapping) else value)
    conda = env.get("conda")
    dependencies = conda.get("dependencies", []) if isinstance(conda, Mapping) else []
    items += [each for item in dependencies if isinstance(item, Mapping) for each in item["pip"]]
    return [item for item in items if package_name(item) is not None]


def _without_effect(name: str) -> str | None:
    if name == "RAY_ADDRESS":
        return "a worker belongs to its own cluster, whatever this says"
    if name.startswith("RAY_") and not name.startswith(("RAY_MULTICLUSTER_", "RAY_DATA_", "RAY_TRAIN_")):
        return "Ray reads its own settings when the node is started, not when a worker is"
    return None
