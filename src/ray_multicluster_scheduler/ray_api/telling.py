"""What the log says of calls to clusters: never a body, a query or a header, which may hold secrets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def tell_call(cluster: str, method: str, path: str) -> Iterator[Callable[[int], None]]:
    """Say at DEBUG what became of a call; yields what is to be called with the status of its answer."""
    began_at, status = time.monotonic(), list[int]()
    try:
        yield status.append
    finally:
        took_ms = 1000 * (time.monotonic() - began_at)
        where, answer = path.partition("?")[0], status[0] if status else "no answer"
        log.debug("%s: %s %s: %s after %.0f ms", cluster, method, where, answer, took_ms)
