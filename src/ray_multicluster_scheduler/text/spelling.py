"""Suggestions for a mistyped word."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def nearest(word: str, valid: Collection[str]) -> str | None:
    """Return the valid word that was probably meant: one with this prefix, or a similar one."""
    small = word.casefold()
    same = [name for name in valid if name.casefold() == small]
    longer = [name for name in valid if name.startswith(word)] if word else []
    return next(iter(same or longer or difflib.get_close_matches(word, valid, n=1)), None)


def did_you_mean(word: str, valid: Collection[str]) -> str:
    """Name the closest of the valid words, or all of them if none is close."""
    near = difflib.get_close_matches(word, valid, n=1)
    return f"did you mean {near[0]!r}?" if near else f"valid: {', '.join(sorted(valid))}"
