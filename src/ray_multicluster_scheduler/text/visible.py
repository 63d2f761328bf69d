"""Text from elsewhere, made harmless for a terminal: what would steer it is shown as a sign instead."""

from __future__ import annotations

import re

#: Control characters but tab and newline, line separators, and what turns the direction of text around. Each
#: could hide or forge what stands beside it: colours, window titles, the clipboard, cells of a table.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: One sign for one character, so that styles and columns stay where they are.
_SIGNS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_ANY_OTHER = "\ufffd"


def visible(text: str) -> str:
    """Return a text of the same length in which nothing steers a terminal: ESC is shown as ␛."""
    return STEERING.sub(_sign, text) if STEERING.search(text) else text


def one_line(text: str) -> str:
    """Return a text as one harmless line, for a cell of a table."""
    return visible(" ".join(text.split()))


def _sign(found: re.Match[str]) -> str:
    return _SIGNS.get(ord(found[0]), _ANY_OTHER)
