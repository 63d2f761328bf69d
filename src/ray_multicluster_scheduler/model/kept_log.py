"""Notes in a stored log about missing parts: only its end is kept, and reading it may fail midway."""

from __future__ import annotations

import re

_CUT = re.compile(r"\A\[the first (\d+) bytes of this log were not kept\]\n")
#: The last line of a log that could not be read completely.
INCOMPLETE = "\n[the rest of this log could not be read from the cluster]\n"


def cut_note(missing: int) -> str:
    """Return the note at the start of a log whose first bytes are missing; empty if none are."""
    return f"[the first {missing} bytes of this log were not kept]\n" if missing else ""


def missing_bytes(kept: str) -> int:
    """Return the number of bytes that are missing at the start of a log."""
    note = _CUT.match(kept)
    return int(note[1]) if note else 0


def without_note(kept: str) -> str:
    """Return a log without the note about missing bytes."""
    return _CUT.sub("", kept, count=1)
