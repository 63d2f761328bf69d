"""Warnings of the library, one line each, for a person at a terminal."""

from __future__ import annotations

import logging

import typer

from ray_multicluster_scheduler.text.visible import one_line

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
