"""Amounts of resources as people write them."""

from __future__ import annotations

from collections.abc import Mapping

from ray_multicluster_scheduler.dashboard.words import Words
from ray_multicluster_scheduler.model.resources import GIB

#: Ray counts these in bytes.
_IN_BYTES = frozenset({"memory", "object_store_memory"})
_FIRST = ("CPU", "GPU", "memory")
#: Ray gives each node a resource of its own name, which says nothing to people.
_OF_A_NODE = "node:"


def number(name: str, value: float) -> str:
    """Return an amount without its unit."""
    return f"{value / GIB:.1f}" if name in _IN_BYTES else f"{value:g}"


def amount(name: str, value: float) -> str:
    """Return an amount with its unit: memory in GiB."""
    return f"{number(name, value)} GiB" if name in _IN_BYTES else number(name, value)


def resource_name(words: Words, name: str) -> str:
    """Return what people call a resource."""
    return words.known(f"resources.{name}", name)


def resources_text(words: Words, resources: Mapping[str, float]) -> str:
    """Return resources in one line: CPU, GPU and memory first, the others by name."""
    shown = [name for name in resources if not name.startswith(_OF_A_NODE)]
    shown.sort(key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return " · ".join(f"{resource_name(words, name)} {amount(name, resources[name])}" for name in shown)
