"""A server of ours (`raymc serve`) in a process of its own, for as long as somebody needs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_multicluster_scheduler.errors import SchedulerError

START_S = 60.0
STOP_S = 30.0
_LOOK_S = 0.1
_SAYS = re.compile(r"stock Ray clients +(\S+)")


@contextmanager
def served(config: Path, *, log: Path, store: Path | None = None) -> Iterator[str]:
    """Run a server on these clusters and any free port, and yield its address; what it says goes to `log`."""
    command = [sys.executable, "-m", "ray_multicluster_scheduler.cli.main", "serve", "--port", "0"]
    command += ["--config", os.fspath(config), *(["--store", os.fspath(store)] if store else [])]
    with log.open("wb") as told:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=told)
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
    ends_at = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < ends_at:
        if found := _SAYS.search(log.read_text()):
            return found[1]
        time.sleep(_LOOK_S)
    raise SchedulerError(f"the server did not start: {log.read_text().strip() or 'it said nothing'}")
