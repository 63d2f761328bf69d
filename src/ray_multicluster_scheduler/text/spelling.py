"""What somebody may have meant who mistyped a word."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def nearest(word: str, known: Collection[str]) -> str | None:
    """Return the known word that was probably meant: one that begins so, or one that looks like it."""
    small = word.casefold()
    same = [name for name in known if name.casefold() == small]
    longer = [name for name in known if name.startswith(word)] if word else []
    return next(iter(same or longer or difflib.get_close_matches(word, known, n=1)), None)


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Name the nearest of the known words, or all of them when none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"valid: {', '.join(sorted(known))}"
