"""Output of all commands: no foreign text controls the terminal, and pipes get plain rows or JSON."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.text import STEERING, one_line, visible

#: Into a pipe nothing is wrapped: one thing, one line, so that grep finds all of it.
PIPE_COLUMNS = 1_000_000


class PlainConsole(Console):
    """A Rich console through which all words of a command pass.

    Text comes from clusters, from other users and from files: it is made harmless here, in one place.
    In a pipe a table is one line per row: no boxes, no padding at the end, nothing cut.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        # No markup and no emoji: a command or a path may hold [brackets] and :colons:.
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)
        if not self.is_terminal:
            self.width = PIPE_COLUMNS

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render only harmless text; Rich calls this for every part of a renderable as well."""
        if isinstance(renderable, str):
            renderable = Text(renderable)
        if isinstance(renderable, Text):
            renderable = _harmless(renderable)
        elif isinstance(renderable, Table) and not self.is_terminal:
            return _rows(renderable)
        return super().render(renderable, options)


def stdout_console() -> Console:
    """Return the console for a command's output."""
    return PlainConsole()


def stderr_console() -> Console:
    """Return the console for what is said beside the output: progress, hints, what was done."""
    return PlainConsole(stderr=True)


def say(words: str | Text, *, style: str = "") -> None:
    """Tell a person something beside the output: wrapped on a terminal, one line in a pipe."""
    console = stderr_console()
    console.print(words, style=style, soft_wrap=not console.is_terminal)


def write_line(words: str) -> None:
    """Write one line of a command's output that a program may read."""
    sys.stdout.write(f"{visible(words)}\n")
    sys.stdout.flush()


def write_json(value: object, *, one_line: bool = False) -> None:
    """Write a document for programs; on one line each where several follow one another."""
    indent = None if one_line else 2
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    sys.stdout.write(STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
    sys.stdout.flush()


def _harmless(text: Text) -> Text:
    shown = visible(text.plain)
    if shown != text.plain:
        text = text.copy()
        text.plain = shown
    return text


def _rows(table: Table) -> Iterator[Segment]:
    """Write a table for programs: columns are two blanks apart, and the last one is not padded."""
    columns = [[_words(cell) for cell in column.cells] for column in table.columns]
    if table.show_header:
        columns = [
            [_words(column.header), *cells] for column, cells in zip(table.columns, columns, strict=True)
        ]
    widths = [max(map(cell_len, cells), default=0) for cells in columns]
    for row in zip(*columns, strict=True):
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        yield Segment("  ".join(padded).rstrip())
        yield Segment.line()


def _words(cell: RenderableType) -> str:
    return one_line(cell.plain if isinstance(cell, Text) else str(cell)) or "-"


# Warnings of the library, one line each, for a person at a terminal.


#: What a record has besides what the caller gave it.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "notice"}


class WarningHandler(logging.Handler):
    """Writes warnings with their facts to stderr, without tracebacks: whatever waits raises the error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Write `warning: stop not delivered (job=sub_1, why=...)`."""
        facts = ", ".join(
            f"{name}={value}" for name, value in record.__dict__.items() if name not in _STANDARD
        )
        level = "" if hasattr(record, "notice") else f"{record.levelname.lower()}: "
        words = f"{level}{record.getMessage()}{f' ({facts})' if facts else ''}"
        typer.echo(one_line(words), err=True)


#: Exit code of a command that Ctrl-C ended.
INTERRUPTED = 128 + signal.SIGINT
_ENDING = (signal.SIGTERM, signal.SIGHUP)
#: A closed terminal sends SIGHUP more than once: what comes this soon after the first belongs to it.
ONE_SIGNAL_S = 10.0


class Terminated(SystemExit):
    """SIGTERM or SIGHUP, raised in the main thread. Jobs go on."""


@contextmanager
def unwinding() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `Terminated`, with the shell's exit code: 143 or 129."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    codes: list[int] = []
    last = -ONE_SIGNAL_S

    def terminate(number: int, _: object) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= ONE_SIGNAL_S:
            last = now
            codes.append(128 + number)
            raise Terminated(codes[0])

    former = _replace(_ENDING, terminate)
    try:
        yield
    except BaseException:
        if codes:  # the terminal may be gone, and what is shown on the way out fails
            sys.exit(codes[0])
        raise
    finally:
        _restore(former)


@contextmanager
def held() -> Iterator[None]:
    """Hold signals back until an import has ended: half a module would fail with unrelated errors."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    former = _replace((signal.SIGINT, *_ENDING), lambda number, _: came.append(number))
    try:
        yield
    finally:
        _restore(former)
        if came:
            signal.raise_signal(came[0])


def _replace(numbers: tuple[int, ...], handler: Any) -> dict[int, Any]:
    """Set a handler for signals that are not ignored, as `nohup` does with SIGHUP; return the former."""
    heard = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    return {number: signal.signal(number, handler) for number in heard}


def _restore(former: dict[int, Any]) -> None:
    for number, handler in former.items():
        signal.signal(number, handler)
