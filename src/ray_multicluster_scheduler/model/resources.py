"""Amounts of named resources: `CPU`, `GPU`, `memory` (always in bytes) and custom names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ray_multicluster_scheduler.errors import InvalidResources

Resources = Mapping[str, float]

GIB = 1024**3
#: A `memory` request below this is in GiB, else in bytes: both units are in use, and no job needs a PiB.
BYTES_FROM = 2**20
#: Rounding errors of sums (0.1 + 0.2) must not keep a job from fitting.
TOLERANCE = 1e-9
#: The limit of a 64-bit integer column.
MOST = 2**63
#: Any text without control characters and lone surrogates.
_NAME = re.compile("[^\0-\x1f\x7f\ud800-\udfff]{1,500}")


def parse_requirements(requirements: Mapping[str, float] | None, *, name: str) -> dict[str, float]:
    """Check the amounts that a user passed as the argument `name`; return `memory` in bytes and no zeros."""
    if requirements is None:
        return {}
    if not isinstance(requirements, Mapping):
        raise InvalidResources(
            f"{name} must be a mapping such as {{'CPU': 4}}, not {ascii(requirements)[:80]}"
        )
    parsed = {
        _resource_name(resource, name): _amount(resource, amount, name)
        for resource, amount in requirements.items()
    }
    return {resource: amount for resource, amount in parsed.items() if amount > 0}


def _resource_name(resource: object, name: str) -> str:
    if not is_resource_name(resource) or not isinstance(resource, str):
        raise InvalidResources(
            f"{name}: the names of resources are words such as 'CPU' or 'GPU', not {ascii(resource)[:80]}"
        )
    return resource


def is_resource_name(name: object) -> bool:
    """Tell whether this can be the name of a resource."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _amount(resource: str, amount: object, name: str) -> float:
    # Not `math.isfinite`: it raises for integers that are too large for a float.
    is_number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
    if not is_number or not isinstance(amount, (int, float)) or not abs(amount) < MOST:
        raise InvalidResources(f"{name}: the amount of {resource!r} must be a number, not {_shown(amount)}")
    if amount < 0:
        raise InvalidResources(f"{name}: the amount of {resource!r} must not be negative, it is {amount}")
    return float(amount) * GIB if resource == "memory" and amount < BYTES_FROM else float(amount)


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) >= MOST:
        return f"one of 2**63 ({MOST}) or more"
    return ascii(value)[:80]


def plus(left: Resources, right: Resources) -> dict[str, float]:
    """Add two amounts by name."""
    return {
        name: left.get(name, 0.0) + right.get(name, 0.0)
        for name in (*left, *(r for r in right if r not in left))
    }


def shortfall(wanted: Resources, available: Resources) -> dict[str, float]:
    """Return the amounts of `wanted` that `available` lacks; empty if it fits."""
    return {
        name: amount - available.get(name, 0.0)
        for name, amount in wanted.items()
        if amount > available.get(name, 0.0) + TOLERANCE
    }


def show(resources: Resources) -> str:
    """Write amounts for people: `4 CPU, 1 GPU, 16 GiB memory`."""
    parts = [f"{_number(amount)} {name}" for name, amount in sorted(resources.items()) if not _is_bytes(name)]
    parts += [
        f"{_number(amount / GIB)} GiB {name}" for name, amount in sorted(resources.items()) if _is_bytes(name)
    ]
    return ", ".join(parts) or "nothing"


def _is_bytes(name: str) -> bool:
    return name in {"memory", "object_store_memory"}


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
