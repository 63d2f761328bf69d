"""What SIGINT, SIGTERM and SIGHUP do to a command: it unwinds, so that its lease is handed over at once."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
