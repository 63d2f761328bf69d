"""Writes the log of a job: unchanged to a file or a pipe, without harmful escape codes to a terminal."""

from __future__ import annotations

import re
import sys

from ray_multicluster_scheduler.text.visible import visible

#: Colours, and clearing the rest of a line as progress bars do: these a log may use.
_ALLOWED = re.compile(r"\x1b\[[0-9;:]*m|\x1b\[[012]?K|[\n\t\r\b]|[\u061c\u200e\u200f]")
#: All else that a terminal would obey: window titles, the clipboard, movements, other character sets.
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]+[0-~]|\x1b[0-OQ-WYZ\\`-~]"
    r"|[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
#: A sequence whose end comes with the next piece.
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]*\x1b?|[ -/]*)?\Z")
#: What is longer has no end: it is shown instead.
_LONGEST_SEQUENCE = 4096
_RESET = "\x1b[0m"


class LogWriter:
    """Writes pieces of a log to stdout; `close` after the last one."""

    def __init__(self) -> None:
        self._filters = sys.stdout.isatty()
        self._held = ""
        self._coloured = False

    def write(self, piece: str) -> None:
        """Write a piece; a sequence that is cut off waits for its other half."""
        if self._filters:
            piece = self._filter(self._held + piece)
        sys.stdout.write(piece)
        sys.stdout.flush()

    def close(self) -> None:
        """Write what was held back, and end a colour that the log has left on."""
        rest = visible(self._held) + (_RESET if self._coloured else "")
        self._held, self._coloured = "", False
        if rest:
            sys.stdout.write(rest)
            sys.stdout.flush()

    def _filter(self, text: str) -> str:
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _LONGEST_SEQUENCE))
        cut = len(text) if unfinished is None else unfinished.start()
        self._held = text[cut:]
        return _SEQUENCE.sub(self._harmless, text[:cut])

    def _harmless(self, found: re.Match[str]) -> str:
        sequence = found[0]
        if _ALLOWED.fullmatch(sequence):
            self._coloured |= sequence.endswith("m")
            return sequence
        return "" if len(sequence) > 1 else visible(sequence)
