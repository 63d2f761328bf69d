"""Text from and for people: spelling, times and sizes, and output that is safe for a terminal."""

from __future__ import annotations

import difflib
import math
import re
import string
from collections.abc import Collection, Iterable, Mapping

# Suggestions for a mistyped word.


def nearest(word: str, valid: Collection[str]) -> str | None:
    """Return the valid word that was probably meant: one with this prefix, or a similar one."""
    small = word.casefold()
    same = [name for name in valid if name.casefold() == small]
    longer = [name for name in valid if name.startswith(word)] if word else []
    return next(iter(same or longer or difflib.get_close_matches(word, valid, n=1)), None)


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """Name the closest of the valid words, or all of them if none is close."""
    valid = sorted(valid)
    near = difflib.get_close_matches(word, valid, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(valid)}"


# Text as every database can keep it: programs write anything into their logs and error messages.


#: Stands for what cannot be kept.
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def storable(text: str) -> str:
    """Return the text with NUL and lone surrogates replaced: no encoding, or not every database, has them."""
    if text.isascii() and "\0" not in text:  # nearly always
        return text
    clean = text.replace("\0", REPLACEMENT)
    try:
        clean.encode()
    except UnicodeEncodeError:
        return "".join(REPLACEMENT if "\ud800" <= each <= "\udfff" else each for each in clean)
    return clean


# Times and sizes as people write them: 90s, 15min, 12h, 30d, 2w; 512MiB, 4G, 4GB. The one parser of both.


_SECONDS: Mapping[str, int] = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
#: `4G` and `4Gi` are 4 GiB, as for Slurm and Docker; `4GB` is decimal, as it is printed on a disk.
BYTES: Mapping[str, int] = {
    "b": 1,
    **{unit: 1024**power for power, k in enumerate("kmgt", start=1) for unit in (k, f"{k}i", f"{k}ib")},
    **{f"{k}b": 1000**power for power, k in enumerate("kmgt", start=1)},
}


def seconds_of(text: str, *, plain: bool = False) -> float:
    """Read a length of time; a number without a unit only if `plain`. ValueError says what is wanted."""
    value = _amount(text, {**_SECONDS, "": 1} if plain else _SECONDS)
    if value is None:
        number = ", or a number of seconds" if plain else ""
        raise ValueError(f"{text[:80]!r} is no span of time; write 90s, 30m, 12h, 30d or 2w{number}")
    return value


def bytes_of(text: str, *, plain: int) -> float:
    """Read a size; a number without a unit counts units of `plain` bytes. ValueError says what is wanted."""
    value = _amount(text, {**BYTES, "": plain})
    if value is None:
        raise ValueError(f"{text[:80]!r} is no size; write 512MiB, 4GiB (or 4G), 4GB, or a plain number")
    return value


def _amount(text: str, units: Mapping[str, int]) -> float | None:
    number = text.strip().rstrip(string.ascii_letters)
    unit = units.get(text.strip()[len(number) :].lower())
    try:
        value = float(number) * (unit or 0)
    except ValueError:
        return None
    return value if unit is not None and math.isfinite(value) and not value < 0 else None


# Makes foreign text safe for a terminal: control characters are shown as visible symbols instead.


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
