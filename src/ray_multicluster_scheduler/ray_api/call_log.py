"""Debug log of HTTP calls to clusters, without bodies, queries and headers, which may hold secrets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def log_call(cluster: str, method: str, path: str) -> Iterator[Callable[[int], None]]:
    """Log a call and its outcome at DEBUG; yields a function that takes the HTTP status."""
    began_at, status = time.monotonic(), list[int]()
    try:
        yield status.append
    finally:
        took_ms = 1000 * (time.monotonic() - began_at)
        where, answer = path.partition("?")[0], status[0] if status else "no answer"
        log.debug("%s: %s %s: %s after %.0f ms", cluster, method, where, answer, took_ms)
