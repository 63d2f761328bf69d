"""Run `raymc serve` in a process of its own, for as long as it is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ray_multicluster_scheduler.errors import SchedulerError

START_S = 60.0
STOP_S = 30.0
_POLL_S = 0.1
_ADDRESS_LINE = re.compile(r"stock Ray clients +(\S+)")


@contextmanager
def served(
    config: Path, *, log: Path, store: Path | None = None, options: Sequence[str] = ()
) -> Iterator[str]:
    """Run a server on these clusters and any free port, and yield its address. Its output goes to `log`."""
    command = [sys.executable, "-m", "ray_multicluster_scheduler.cli.main", "serve", "--port", "0"]
    command += ["--config", os.fspath(config), *(["--store", os.fspath(store)] if store else []), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output)
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        if match := _ADDRESS_LINE.search(log.read_text()):
            return match[1]
        time.sleep(_POLL_S)
    raise SchedulerError(f"the server did not start: {log.read_text().strip() or 'it said nothing'}")
