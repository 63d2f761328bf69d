"""The words in a log that say what of it is missing: only its end is kept, and a link may be too slow."""

from __future__ import annotations

import re

_CUT = re.compile(r"\A\[the first (\d+) bytes of this log were not kept\]\n")
#: At the end of a log that could not be read to its end.
INCOMPLETE = "\n[the rest of this log could not be read from the cluster]\n"


def cut_note(missing: int) -> str:
    """Return the first line of a log whose own beginning is missing."""
    return f"[the first {missing} bytes of this log were not kept]\n" if missing else ""


def missing_bytes(kept: str) -> int:
    """Return how much of a log is missing at its beginning."""
    note = _CUT.match(kept)
    return int(note[1]) if note else 0


def without_note(kept: str) -> str:
    """Return a log without the line that says what is missing."""
    return _CUT.sub("", kept, count=1)
