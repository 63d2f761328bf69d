"""The lines of a log on stderr: JSON for programs, plain words for a person at a terminal."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, TextIO

from ray_multicluster_scheduler.text import one_line

if TYPE_CHECKING:
    _TextHandler = logging.StreamHandler[TextIO]
else:  # Python 3.10 has no such types at run time
    _TextHandler = logging.StreamHandler

#: The logger of lines about requests that were answered.
REQUEST_LOG = "ray_multicluster_scheduler.server.door"
#: How long a line about a request waits for others, to be written with them.
WRITE_AFTER_S = 0.1
#: Made once: to make one for each line takes longer than to write the line.
_JSON = json.JSONEncoder(default=str)


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


class LogLines(_TextHandler):
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
    return record.name == REQUEST_LOG and record.levelno == logging.INFO


#: What a record has besides what the caller gave it: Python's own fields, uvicorn's and Ray's.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "color_message",
    "_ray_timestamp_ns",
}


@contextmanager
def logging_to_stderr(*, access_log: bool | None) -> Iterator[None]:
    """Write our log and uvicorn's warnings to stderr: for a person at a terminal, else JSON, a line each.

    Requests are logged with `access_log`; None: only where stderr is no terminal.
    """
    handler = LogLines(sys.stderr)
    for_people = sys.stderr.isatty()
    handler.setFormatter(PlainLines() if for_people else JsonLines())
    handler.addFilter(_not_logged_elsewhere)
    if not (not for_people if access_log is None else access_log):
        handler.addFilter(lambda record: not is_request(record))
    ours, theirs = logging.getLogger("ray_multicluster_scheduler"), logging.getLogger("uvicorn.error")
    former = ours.level, theirs.level, ours.handlers[:]
    ours.handlers[:] = [handler]  # the lines of the command line are for a person who waits
    theirs.addHandler(handler)
    ours.setLevel(logging.INFO)
    theirs.setLevel(logging.WARNING)
    try:
        yield
    finally:
        handler.flush()
        theirs.removeHandler(handler)
        ours.handlers[:] = former[2]
        ours.setLevel(former[0])
        theirs.setLevel(former[1])


def _not_logged_elsewhere(record: logging.LogRecord) -> bool:
    """Drop records that `Door` has logged with the request's id, and those of streams that we cut."""
    return record.name != "uvicorn.error" or not record.getMessage().startswith(
        ("Exception in ASGI application", "ASGI callable returned without completing")
    )
