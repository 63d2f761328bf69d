"""Amounts of named resources: `CPU`, `GPU`, `memory` (always bytes in here) and custom names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ray_multicluster_scheduler.errors import InvalidResources

Resources = Mapping[str, float]

GIB = 1024**3
#: A `memory` request below this is GiB, from here on bytes: both forms are in use, and nobody has a PiB.
BYTES_FROM = 2**20
#: Sums of fractions (0.1 + 0.2) must not make a job miss its place by 1e-17.
TOLERANCE = 1e-9
#: No store has room for more.
MOST = 2**63
#: Any text without control characters and halves of surrogate pairs.
_NAME = re.compile("[^\0-\x1f\x7f\ud800-\udfff]{1,500}")


def parse_requirements(requirements: Mapping[str, float] | None, *, name: str) -> dict[str, float]:
    """Check a user's amounts, given as the argument `name`: `memory` in bytes, and zeros dropped."""
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


def _resource_name(given: object, name: str) -> str:
    if not isinstance(given, str) or not given or not _NAME.fullmatch(given):
        raise InvalidResources(
            f"{name}: the names of resources are words such as 'CPU' or 'GPU', not {ascii(given)[:80]}"
        )
    return given


def _amount(resource: str, given: object, name: str) -> float:
    # Not `math.isfinite`: it fails for whole numbers that no float can hold.
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not is_number or not isinstance(given, (int, float)) or not abs(given) < MOST:
        raise InvalidResources(f"{name}: the amount of {resource!r} must be a number, not {_shown(given)}")
    if given < 0:
        raise InvalidResources(f"{name}: the amount of {resource!r} must not be negative, it is {given}")
    return float(given) * GIB if resource == "memory" and given < BYTES_FROM else float(given)


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
