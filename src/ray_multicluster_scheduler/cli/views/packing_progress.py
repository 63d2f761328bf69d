"""What a person sees while a large directory is packed: how much of it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from ray_multicluster_scheduler.cli.console import say, stderr_console

#: A directory that is read in no time is not worth a line.
WORTH_A_LINE_BYTES = 20 * 1024**2
#: How often a line is written where no terminal is.
EVERY_S = 10.0


@contextmanager
def packing_display() -> Iterator[Callable[[int, int], None]]:
    """Yield a callback for (bytes read, bytes in all): a moving line on a terminal, few lines elsewhere."""
    console = stderr_console()
    if console.is_terminal:
        status = console.status("")

        def show(done: int, total: int) -> None:
            status.start()  # not before: most jobs have nothing to pack
            status.update(f"packing the environment: {_read(done, total)}")

        try:
            yield show
        finally:
            status.stop()
        return
    said_at = float("-inf")

    def tell(done: int, total: int) -> None:
        nonlocal said_at
        if total >= WORTH_A_LINE_BYTES and monotonic() - said_at >= EVERY_S:
            said_at = monotonic()
            say(f"packing the environment: {_read(done, total)}")

    yield tell


def _read(done: int, total: int) -> str:
    return f"{done / 1024**2:.1f} of {total / 1024**2:.1f} MiB were read"
