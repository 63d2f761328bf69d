"""Checks of single arguments: what cannot be stored or sent is refused here, by the name the caller wrote."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from ray_multicluster_scheduler.errors import InvalidRequest

#: A name, a key, a tag, a reason.
MAX_TEXT_CHARS = 10_000
#: JSON parsers do not keep larger integers exactly.
MOST = 2**53
#: A century: longer than any run or wait.
MOST_SECONDS = 100 * 366 * 86_400.0
#: Metadata comes back with every list of jobs of a cluster.
MAX_METADATA_BYTES = 64 * 2**10

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL}")
_LABEL_VALUE = re.compile(rf"!?{_LABEL}|!?(?:in)?\({_LABEL}(?:, ?{_LABEL})*\)")


def text(name: str, given: Any, *, empty: bool = False) -> str:
    """Return a text that a file, a database and a cluster can hold."""
    if not isinstance(given, str) or not (empty or given.strip()):
        raise InvalidRequest(f"{name} must be a text, not {shown(given)}")
    if len(given) > MAX_TEXT_CHARS:
        raise InvalidRequest(f"{name} is longer than {MAX_TEXT_CHARS} characters")
    if "\0" in given or given.encode("utf-8", "replace").decode() != given:
        raise InvalidRequest(
            f"{name} must be valid Unicode text without NUL characters, not {shown(given)}; "
            "it can neither be stored nor sent"
        )
    return given


def text_or_none(name: str, given: Any) -> str | None:
    """Return a text, or None when nothing was given."""
    return None if given is None else text(name, given)


def words(name: str, given: Any) -> tuple[str, ...]:
    """Return a list of texts, each once."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Collection):
        raise InvalidRequest(f"{name} must be a list of words, not {shown(given)}")
    return tuple(dict.fromkeys(text(name, word) for word in given))


def whole(name: str, given: Any, *, least: int = -MOST) -> int:
    """Return a whole number."""
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= MOST:
        start = f" from {least}" if least > -MOST else ""
        raise InvalidRequest(f"{name} must be a whole number{start} up to 2**53, not {shown(given)}")
    return given


def amount(name: str, given: Any) -> float | None:
    """Return an amount of something, or None when nothing was given."""
    if given is None:
        return None
    if (value := _number(name, given, most=MOST)) < 0:
        raise InvalidRequest(f"{name} must not be negative, it is {shown(given)}")
    return value


def seconds(name: str, given: Any) -> float | None:
    """Return a length of time, or None when nothing was given."""
    if given is None:
        return None
    if (value := _number(name, given, most=MOST_SECONDS)) <= 0:
        raise InvalidRequest(f"{name} must be more than 0 seconds, it is {shown(given)}")
    return value


def moment(name: str, given: Any) -> float:
    """Return a time in seconds since the epoch."""
    if (value := amount(name, given)) is None:
        raise InvalidRequest(f"{name} must be a time in seconds since the epoch, not None")
    return value


def cursor(given: Any) -> int | None:
    """Return where a page begins; None: at the start."""
    if given is None:
        return None
    if not isinstance(given, str) or not (given.isascii() and given.isdecimal()) or len(given) > 18:
        raise InvalidRequest(f"cursor {shown(given)} is none of ours; take next_cursor of a page")
    return int(given)


def metadata(given: Any) -> dict[str, str]:
    """Return metadata as Ray wants it: texts, and not too many of them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidRequest(f"metadata must be a mapping of text, not {type(given).__name__}")
    try:
        pairs = {str(key): str(value) for key, value in given.items()}
    except ValueError:  # an integer with more digits than Python converts to text
        raise InvalidRequest(
            "metadata holds a number that is too long to be written; give it as text"
        ) from None
    whole_text = "".join(part for pair in pairs.items() for part in pair)
    if "\0" in whole_text or whole_text.encode("utf-8", "replace").decode() != whole_text:
        raise InvalidRequest(
            "metadata must be valid Unicode text without NUL characters; it can neither be stored nor sent"
        )
    if (size := len(whole_text.encode())) > MAX_METADATA_BYTES:
        raise InvalidRequest(
            f"metadata has {size} bytes, and every list of a cluster's jobs repeats them; at most "
            f"{MAX_METADATA_BYTES} are taken. Put large values into a file of the working_dir"
        )
    return pairs


def label_selector(name: str, given: Any) -> dict[str, str]:
    """Return which nodes a driver may run on, by their labels, as Ray takes it."""
    if not isinstance(given, Mapping):
        raise InvalidRequest(f"{name} must be a mapping of text, not {shown(given)}")
    for key, value in given.items():
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            raise InvalidRequest(f"{name}: Invalid label selector key {shown(key)}")
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            raise InvalidRequest(
                f"{name}: Invalid label selector value {shown(value)}; write a label such as 'west', "
                "'!west', 'in(west,east)' or '!in(west,east)'"
            )
    return dict(given)


def shown(value: Any) -> str:
    """Write a value for a message; one that is too long or cannot be written is cut."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**70:
        return "a number of that size"
    said = ascii(value)
    return said if len(said) <= 80 else f"{said[:80]}..."


def _number(name: str, given: Any, *, most: float) -> float:
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not is_number or (isinstance(given, float) and math.isnan(given)):
        raise InvalidRequest(f"{name} must be a number, not {shown(given)}")
    if abs(given) > most:
        raise InvalidRequest(f"{name} must be a number up to {most:.0f}, not {shown(given)}")
    return float(given)
