"""Makes foreign text safe for a terminal: control characters are shown as visible symbols instead."""

from __future__ import annotations

import re

#: Control characters except tab and newline, line separators, and marks of the writing direction. Each could
#: hide or forge other output: colours, window titles, the clipboard, cells of a table.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
#: One symbol for one character, so that styles and columns stay in place.
_SYMBOLS = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_ANY_OTHER = "\ufffd"


def visible(text: str) -> str:
    """Return a text of the same length without control characters: ESC is shown as ␛."""
    return STEERING.sub(_symbol, text) if STEERING.search(text) else text


def one_line(text: str) -> str:
    """Return a text as one harmless line, for a cell of a table."""
    return visible(" ".join(text.split()))


def _symbol(match: re.Match[str]) -> str:
    return _SYMBOLS.get(ord(match[0]), _ANY_OTHER)
