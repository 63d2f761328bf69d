"""Times and sizes as parsers of Typer options."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import typer

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.text.units import bytes_of, seconds_of

T = TypeVar("T")


def seconds(text: str) -> float:
    """Read a length of time, which needs a unit."""
    return _read(lambda: seconds_of(text))


def plain_seconds(text: str) -> float:
    """Read a length of time; a plain number is in seconds."""
    return _read(lambda: seconds_of(text, plain=True))


def gib(text: str) -> float:
    """Read a size; a plain number, however large, is in GiB."""
    return _read(lambda: bytes_of(text, plain=GIB)) / GIB


def whole_bytes(text: str) -> int:
    """Read a size; a plain number is in bytes."""
    return int(_read(lambda: bytes_of(text, plain=1)))


def moment(text: str) -> float:
    """Read a date, or a length of time before now, as seconds since the epoch."""
    try:
        return datetime.fromisoformat(text.strip()).timestamp()  # without a zone: of this machine
    except ValueError:
        pass
    try:
        return SystemClock().now() - seconds_of(text)
    except ValueError as problem:
        raise typer.BadParameter(f"{problem}, or a date: 2026-11-17 or '2026-11-17 22:00'") from None


def _read(parse: Callable[[], T]) -> T:
    try:
        return parse()
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
