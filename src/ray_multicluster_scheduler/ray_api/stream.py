"""Incremental parsers for answers of any length: they never hold a whole answer or block for long.

A JSON parser blocks the process, so an answer of many megabytes from one cluster would delay the work for all
others. Here each row of a list and each chunk of a log is parsed on its own.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

from ray_multicluster_scheduler.model.kept_log import INCOMPLETE, cut_note
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer

#: The longest row of a list.
MAX_ROW_CHARS = 4 * 2**20
_SPACE = " \t\r\n"
_DECODER = json.JSONDecoder()
_LOG_BEGINS = re.compile(r'\s*\{\s*"logs"\s*:\s*"')
#: As many complete characters and complete escapes of a JSON text as possible.
_WHOLE = re.compile(r'(?:[^"\\]+|\\u[0-9a-fA-F]{4}|\\[^u])*')
_LONGEST_ESCAPE = len("\\u0000")
_LONGEST_BEGINNING = 1000


class RowParser:
    """Parses the objects of a JSON array that arrives in chunks."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        #: What has come since the last try, and how much. The next try needs as much again as there was: a
        #: long row is neither copied nor parsed for each chunk.
        self._new: list[str] = []
        self._new_chars = self._retry_chars = 0
        self._expected = "["

    def feed(self, chunk: bytes) -> list[dict[str, Any]]:
        """Add the next chunk and return the rows that are complete now."""
        self._new.append(self._decode(chunk))
        self._new_chars += len(self._new[-1])
        return self._take() if self._new_chars >= self._retry_chars else []

    def end(self) -> list[dict[str, Any]]:
        """Return the last rows; raise if the array is incomplete."""
        rows = self._take()
        if self._expected or self._text.strip(_SPACE):
            raise MalformedAnswer("its list breaks off")
        return rows

    def _take(self) -> list[dict[str, Any]]:
        self._text += "".join(self._new)
        self._new, self._new_chars = [], 0
        rows: list[dict[str, Any]] = []
        at = 0
        while self._expected and (at := self._after_space(at)) < len(self._text):
            mark = self._text[at]
            if mark == "{" and "{" in self._expected:
                try:
                    row, at = _DECODER.raw_decode(self._text, at)
                except json.JSONDecodeError:
                    break
                rows.append(row)
                self._expected = ",]"
            elif mark not in self._expected or mark == "{":
                raise MalformedAnswer(f"{mark!r} has no place in a list of objects")
            else:
                at += 1
                self._expected = {"[": "{]", ",": "{", "]": ""}[mark]
        self._text = self._text[at:]
        self._retry_chars = len(self._text)
        if len(self._text) > MAX_ROW_CHARS:
            raise MalformedAnswer("a row of its list is too long or not JSON")
        return rows

    def _after_space(self, at: int) -> int:
        while at < len(self._text) and self._text[at] in _SPACE:
            at += 1
        return at


class LogEnd:
    """Keeps the last `keep_bytes` of the log in `{"logs": "..."}`, which arrives in chunks."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._begun = self._closed = False
        #: The first half of a surrogate pair, whose second half may be in the next chunk.
        self._half = ""
        self._end = bytearray()
        self._missing = 0

    @property
    def begun(self) -> bool:
        """Tell whether anything of the log was read."""
        return bool(self._end or self._missing)

    def feed(self, chunk: bytes) -> None:
        """Add the next chunk."""
        self._text += self._decode(chunk)
        if not self._begun and not self._begin():
            return
        if self._closed:
            self._text = ""
            return
        whole = _WHOLE.match(self._text)
        assert whole is not None
        rest = self._text[whole.end() :]
        self._closed = rest.startswith('"')
        if not self._closed and len(rest) > _LONGEST_ESCAPE:
            raise MalformedAnswer("its text contains an invalid JSON escape")
        self._add(json.loads(f'"{whole[0]}"', strict=False))
        self._text = rest

    def text(self, *, complete: bool = True) -> str:
        """Return the end of the log, with a note about missing bytes before it and, if so, after it."""
        if complete and not self._closed:
            raise MalformedAnswer("its log breaks off")
        self._drop(len(self._end) - self._keep_bytes)
        while self._end and self._end[0] & 0xC0 == 0x80:  # do not start inside a character
            self._drop(1)
        return cut_note(self._missing) + self._end.decode() + ("" if complete else INCOMPLETE)

    def _begin(self) -> bool:
        match = _LOG_BEGINS.match(self._text)
        if match is None:
            if len(self._text) > _LONGEST_BEGINNING or not '{"logs":"'.startswith(_squeezed(self._text)[:9]):
                raise MalformedAnswer("'logs' must be a text")
            return False
        self._begun, self._text = True, self._text[match.end() :]
        return True

    def _add(self, text: str) -> None:
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        joined = text[: len(text) - len(self._half)].encode("utf-16-le", "surrogatepass")
        self._end += joined.decode("utf-16-le", "replace").replace("\0", "?").encode()
        if len(self._end) > 2 * self._keep_bytes + 2**16:
            self._drop(len(self._end) - self._keep_bytes)

    def _drop(self, count: int) -> None:
        if count > 0:
            del self._end[:count]
            self._missing += count


def _squeezed(text: str) -> str:
    return "".join(text.split())
