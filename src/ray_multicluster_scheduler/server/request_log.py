"""One line of JSON for each request: what was asked, by whom, and how it went. Never what was in it."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import uuid
from contextlib import nullcontext, suppress
from typing import TextIO

from starlette.types import Scope

from ray_multicluster_scheduler.text.visible import one_line

log = logging.getLogger(__name__)

#: Ids of our own: this process and a number. Random ones would ask the system for each request.
_PROCESS, _NUMBERS = uuid.uuid4().hex[:16], itertools.count(1)
#: A caller's own id for a request is taken over if it is a plain word.
_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.-]{1,64}")
#: Made once: `json.dumps` makes one for each line.
_JSON = json.JSONEncoder(default=str)
#: How long the line of a request may wait for others.
WRITE_AFTER_S = 0.1
#: What a client that went away before its answer began is logged as.
CLIENT_GONE = 499


def request_id_of(scope: Scope) -> str:
    """Return the name of a request: its caller's, or one of our own."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else f"{_PROCESS}{next(_NUMBERS):016x}"


def log_request(scope: Scope, status: int, took_s: float) -> None:
    """Log what is known of a request that has ended. Its route, not its path: that may hold anything."""
    facts = {
        "method": scope.get("method", "WEBSOCKET"),
        "route": getattr(scope.get("route"), "path", None),
        "status": status,
        "ms": round(1000 * took_s, 1),
        "user": getattr(scope["state"].get("caller"), "user", None),
        "request_id": scope["state"]["request_id"],
    }
    log.info("request", extra=facts)


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return time, level and message, then the facts."""
        line = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "what": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _STANDARD},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _JSON.encode(line)


class PlainLines(logging.Formatter):
    """Writes a record for a person at a terminal: time, message, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and a traceback below it; no text from outside controls the terminal."""
        facts = "".join(
            f" {name}={value}" for name, value in vars(record).items() if name not in _STANDARD and value
        )
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        line = f"{self.formatTime(record, '%H:%M:%S')} {level}{one_line(record.getMessage() + facts)}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class LogLines(logging.StreamHandler[TextIO]):
    """Writes requests together with those that end soon after them, and all else at once, in order.

    To write a line of its own for each one took more time than all else about the line.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line; one about a request comes from the loop of the server."""
        self._lines.append(self.format(record) + self.terminator)
        if not is_request(record):
            self.flush()
        elif len(self._lines) == 1:
            asyncio.get_running_loop().call_later(WRITE_AFTER_S, self.flush)

    def flush(self) -> None:
        """Write what there is. What cannot be written is lost, as it is with Python's own handlers."""
        with self.lock or nullcontext(), suppress(OSError):
            lines, self._lines = self._lines, []
            self.stream.write("".join(lines))
            super().flush()


def is_request(record: logging.LogRecord) -> bool:
    """Tell whether a record is the line about a request that was answered."""
    return record.name == __name__ and record.levelno == logging.INFO


#: What a record has besides what the caller gave it: Python's own fields, uvicorn's and Ray's.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "color_message",
    "_ray_timestamp_ns",
}
