"""Durations as people write them on a command line: 90s, 15min, 12h, 30d, 2w."""

from __future__ import annotations

import re

import typer

from ray_multicluster_scheduler.errors import InvalidRequest

_UNITS_S = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
#: What `jobs --since` takes.
_LENGTH = re.compile(r"(\d+(?:\.\d+)?) *([smhd])")
#: What `prune --older-than` and `token create --expires` take.
_SPAN = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[a-z]+)", re.IGNORECASE)


def seconds(text: str) -> float:
    """Read a duration, as the parser of a Typer option."""
    found = _SPAN.fullmatch(text.strip())
    unit = _UNITS_S.get(found["unit"].lower()) if found else None
    if found is None or unit is None:
        raise typer.BadParameter(f"{text!r} is no span of time; write 12h, 30d or 2w")
    return float(found["number"]) * unit


def seconds_of(option: str, text: str) -> float:
    """Read a duration in one of the units s, m, h, d: `90s`, `30m`, `12h`, `7d`."""
    found = _LENGTH.fullmatch(text.strip())
    if found is None:
        raise InvalidRequest(f"{option} wants a time such as 90s, 30m, 12h or 7d, not {text!r}")
    return float(found[1]) * _UNITS_S[found[2]]
