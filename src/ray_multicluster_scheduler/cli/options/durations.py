"""Spans of time as people write them on a command line: 90s, 15min, 12h, 30d, 2w."""

from __future__ import annotations

import re

import typer

_UNITS_S = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>[a-z]+)", re.IGNORECASE)


def seconds(text: str) -> float:
    """Read a span, for typer."""
    found = _SPAN.fullmatch(text.strip())
    unit = _UNITS_S.get(found["unit"].lower()) if found else None
    if found is None or unit is None:
        raise typer.BadParameter(f"{text!r} is no span of time; write 12h, 30d or 2w")
    return float(found["number"]) * unit
