"""What a job leaves as its result: the bytes of one file, and what these are."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

#: A job finds here the path of the file in which it may leave a result.
RESULT_VAR = "RAY_MULTICLUSTER_RESULT"
#: A larger one is left in a storage that all can read, and its URL is the result.
MAX_RESULT_BYTES = 2**20
#: `set_result` begins bytes with this, so that they stay bytes also where they look like JSON or a URL.
BYTES_MARK = b"\x00raymc-bytes\x00"
#: The longest file: more is not even read.
MAX_FILE_BYTES = MAX_RESULT_BYTES + len(BYTES_MARK)

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\x00-\x1f]{1,4000}")
#: What is nested deeper is left as bytes: libraries that write JSON give up at some depth.
_DEEPEST = 100


class ResultKind(str, Enum):
    """How a result is to be read."""

    JSON = "json"
    BYTES = "bytes"
    #: Where the result is: any URL that fsspec can open.
    URL = "url"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftResult:
    """The file that an attempt has left, as it is; or why it is not here."""

    content: bytes = b""
    problem: str | None = None


TOO_LARGE = LeftResult(
    problem=f"it is larger than {MAX_RESULT_BYTES:,} bytes; leave it in a storage that all can read, and its "
    "URL as the result"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A result as its reader wants it."""

    kind: ResultKind
    #: What the JSON says, the bytes, or the URL.
    value: Any
    size_bytes: int


def read_result(content: bytes) -> Result:
    """Tell what a file holds: marked bytes, one URL, JSON, or else bytes."""
    if content.startswith(BYTES_MARK):
        return _bytes(content[len(BYTES_MARK) :])
    try:
        text = content.decode("utf-8")
    except ValueError:
        return _bytes(content)
    if _URL.fullmatch(text.strip()):
        return Result(kind=ResultKind.URL, value=text.strip(), size_bytes=len(content))
    return read_content(content)


def read_content(content: bytes) -> Result:
    """Tell what the content behind a URL is: JSON, or else bytes."""
    try:
        value = json.loads(content.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return _bytes(content)
    if _is_deep(value):
        return _bytes(content)
    return Result(kind=ResultKind.JSON, value=value, size_bytes=len(content))


def is_url(text: str) -> bool:
    """Tell whether a result of this text is a URL."""
    return _URL.fullmatch(text) is not None


def _bytes(content: bytes) -> Result:
    return Result(kind=ResultKind.BYTES, value=content, size_bytes=len(content))


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text} is too large")
    return number


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for each in level
            if isinstance(each, (list, dict))
            for inner in (each.values() if isinstance(each, Mapping) else each)
        ]
        if not level:
            return False
    return True
