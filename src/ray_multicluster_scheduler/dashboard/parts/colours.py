"""Colours of charts. White text can be read on each, and each stands out on a light and a dark page."""

from __future__ import annotations

from collections.abc import Collection
from zlib import crc32

#: Texts and lines.
QUIET = "#7b8494"
#: By the state of a job or an attempt; `static/dashboard.css` has the same hues for chips.
STATE_COLOURS = {
    "QUEUED": "#64748b",
    "PLACED": "#0369a1",
    "SUBMITTED": "#0369a1",
    "RUNNING": "#2563eb",
    "UNREACHABLE": "#b45309",
    "LOST": "#9333ea",
    "SUCCEEDED": "#15803d",
    "FAILED": "#dc2626",
    "STOPPED": "#64748b",
}
PALETTE = (
    "#2563eb",
    "#c2410c",
    "#0f766e",
    "#9333ea",
    "#be123c",
    "#4d7c0f",
    "#c026d3",
    "#0e7490",
    "#a16207",
    "#64748b",
)


def user_colours(users: Collection[str]) -> dict[str, str]:
    """Return a colour for each user, two of whom share one only when there are more users than colours.

    A user has the same colour every time, unless another one came first.
    """
    found: dict[str, str] = {}
    for user in sorted(users):
        first = crc32(user.encode()) % len(PALETTE)
        order = PALETTE[first:] + PALETTE[:first]
        free = (colour for colour in order if colour not in found.values())
        found[user] = next(free, order[0])
    return found
