"""Parses the text of `ray status`: a cluster with autoscaler v2 reports its usage only in this form.

    Total Usage:
     1.75/3.0 CPU (1.0 used of 1.0 reserved in placement groups)
     500.00MiB/1.86GiB memory

    From request_resources:
     (none)
    Pending Demands:
     {'CPU': 8.0, 'my_res': 1.0}: 3+ pending tasks/actors
     {'CPU': 50.0} * 2, {'GPU': 9.0} * 1 (SPREAD): 1+ pending placement groups

Sizes are rounded to two digits in this text; the sums over the nodes are exact.
"""

from __future__ import annotations

import re
from itertools import islice

from ray_multicluster_scheduler.model.cluster import Usage
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer
from ray_multicluster_scheduler.ray_api.parse import MAX_DEMANDS, MAX_NAMES, count, number, short
from ray_multicluster_scheduler.text.units import BYTES

_AMOUNT = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)(TiB|GiB|MiB|KiB|B)?"
_USAGE_LINE = re.compile(
    rf"{_AMOUNT}/{_AMOUNT} (.+?)(?: \({_AMOUNT} used of {_AMOUNT} reserved in placement groups\))?"
)
_TASKS_LINE = re.compile(
    r"(\{[^{}]*\}): (\d+)\+ pending tasks/actors(?: \((\d+)\+ using placement groups\))?"
)
_GROUPS_LINE = re.compile(r"(.+) \(\w+\): (\d+)\+ pending placement groups")
_BUNDLE = re.compile(r"(\{[^{}]*\}) \* (\d+)")
_SHAPE_ENTRY = re.compile(r"'([^']+)': (\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def parse_usage_text(text: str) -> Usage:
    """Parse the text; the values of a missing block are unknown, not zero."""
    lines = islice(_block(text, "Total Usage:"), MAX_NAMES)
    usage = [match for line in lines if (match := _USAGE_LINE.fullmatch(line))]
    return Usage(
        total={short(match[5]): _value(match[3], match[4]) for match in usage} or None,
        used={short(match[5]): _used(match) for match in usage} or None,
        pending=_pending(text),
    )


def _block(text: str, title: str) -> list[str]:
    """Return the indented lines below a title."""
    lines = text.splitlines()
    if title not in lines:
        return []
    below: list[str] = []
    for line in lines[lines.index(title) + 1 :]:
        if not line.startswith(" "):
            break
        below.append(line.strip())
    return below


def _used(match: re.Match[str]) -> float:
    """Return the amount that is not free: a reservation of a placement group counts, used or not."""
    used = _value(match[1], match[2])
    if match[6] is None:
        return used
    return used - _value(match[6], match[7]) + _value(match[8], match[9])


def _value(digits: str, unit: str | None) -> float:
    if (value := number(float(digits) * BYTES[(unit or "B").lower()])) is None:
        raise MalformedAnswer("an amount of resources is not a number")
    return value


def _pending(text: str) -> tuple[tuple[Resources, int], ...] | None:
    lines = _block(text, "Pending Demands:")
    if not lines:
        return None
    demands: list[tuple[Resources, int]] = []
    for line in lines[:MAX_DEMANDS]:
        if tasks := _TASKS_LINE.fullmatch(line):
            # Tasks in a placement group wait for resources that their group already holds.
            demands.append((_shape(tasks[1]), int(tasks[2]) - int(tasks[3] or 0)))
        elif groups := _GROUPS_LINE.fullmatch(line):
            bundles = _BUNDLE.findall(groups[1])
            demands += [(_shape(shape), int(times) * int(groups[2])) for shape, times in bundles]
    return tuple((shape, count(times)) for shape, times in demands[:MAX_DEMANDS] if times > 0)


def _shape(text: str) -> dict[str, float]:
    return {short(name): _value(amount, None) for name, amount in _SHAPE_ENTRY.findall(text)}
