"""Amounts of named resources: `CPU`, `GPU`, `memory` (always bytes in here) and custom names."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ray_multicluster_scheduler.errors import InvalidResources

Resources = Mapping[str, float]

GIB = 1024**3
#: A `memory` request below this is GiB, from here on bytes: both forms are in use, and nobody has a PiB.
BYTES_FROM = 2**20
#: Sums of fractions (0.1 + 0.2) must not make a job miss its place by 1e-17.
TOLERANCE = 1e-9


def parse_requirements(requirements: Mapping[str, float] | None) -> dict[str, float]:
    """Check a user's `resource_requirements` and return it with `memory` in bytes and zeros dropped."""
    if requirements is None:
        return {}
    if not isinstance(requirements, Mapping):
        raise InvalidResources(
            f"resource_requirements must be a mapping such as {{'CPU': 4}}, not {requirements!r}"
        )
    parsed: dict[str, float] = {}
    for name, amount in requirements.items():
        if not isinstance(name, str) or not name:
            raise InvalidResources(f"resource names are words such as 'CPU' or 'GPU', not {name!r}")
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or not math.isfinite(amount):
            raise InvalidResources(f"the amount of {name!r} must be a number, not {amount!r}")
        if amount < 0:
            raise InvalidResources(f"the amount of {name!r} must not be negative, it is {amount}")
        value = float(amount)
        if name == "memory" and value < BYTES_FROM:
            value *= GIB
        if value > 0:
            parsed[name] = value
    return parsed


def plus(left: Resources, right: Resources) -> dict[str, float]:
    """Add two amounts by name."""
    return {
        name: left.get(name, 0.0) + right.get(name, 0.0)
        for name in (*left, *(r for r in right if r not in left))
    }


def shortfall(wanted: Resources, available: Resources) -> dict[str, float]:
    """Return what is missing in `available` for `wanted`, by name; empty when it fits."""
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
