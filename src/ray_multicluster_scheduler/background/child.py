"""The scheduler process as the child of `raymc serve`: supervised, and started again when it dies."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ray_multicluster_scheduler.background.launch import command
from ray_multicluster_scheduler.engine.leader import is_holder

log = logging.getLogger(__name__)

#: Before a scheduler that has died is started again: this long, then twice as long each time.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
#: A scheduler that has lived this long had a good start.
GOOD_START_S = 60.0
#: How long its end may take: it gives its lease up.
END_TIMEOUT_S = 10.0


class SchedulerChild:
    """One scheduler process at a time, from `start` to `stop`. It ends when this process ends."""

    def __init__(self, config_path: Path, *, environ: Mapping[str, str], job_address: str | None) -> None:
        self._command = command(config_path)
        self._environ = environ
        self._job_address = job_address
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._problem: str | None = "it is being started"
        self._thread = threading.Thread(target=self._supervise, name="raymc-scheduler", daemon=True)

    def start(self) -> None:
        """Start the scheduler, and begin to watch it."""
        self._thread.start()

    def problem(self) -> str | None:
        """Say why no scheduler runs; None: one does."""
        return self._problem

    def is_leader(self, holder: str) -> bool:
        """Tell whether the holder of a lease is this scheduler."""
        process = self._process
        return process is not None and is_holder(holder, process.pid)

    def reload(self) -> None:
        """Let the scheduler read its configuration again."""
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """End the scheduler. Jobs go on."""
        self._stopping.set()
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
        if self._thread.is_alive():
            self._thread.join(END_TIMEOUT_S)

    def _supervise(self) -> None:
        # The scheduler inherits this, and lets SIGHUP through when it can obey: earlier it would die of it.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            lived = threading.Event()
            timer = threading.Timer(GOOD_START_S, lived.set)
            timer.daemon = True
            timer.start()
            code = self._run_once()
            timer.cancel()
            if self._stopping.is_set():
                return
            pause_s = FIRST_PAUSE_S if lived.is_set() else pause_s
            self._problem = f"it ended with code {code}, and is started again in {pause_s:g} s"
            log.error("the scheduler has ended and is started again", extra={"code": code, "in_s": pause_s})
            self._stopping.wait(pause_s)
            pause_s = min(LONGEST_PAUSE_S, 2 * pause_s)

    def _run_once(self) -> int | str:
        """Run a scheduler until it ends; return its exit code, or why it could not be started."""
        ends, alive = os.pipe()  # at its end when this process is gone
        options = ["--server", str(ends)]
        if self._job_address is not None:
            options += ["--job-address", self._job_address]
        try:
            self._process = subprocess.Popen(
                [*self._command, *options],
                stdin=subprocess.DEVNULL,
                env=dict(self._environ),
                pass_fds=(ends,),
                start_new_session=True,  # Ctrl-C on a terminal is for the server, which ends it
            )
            self._problem = None
            if self._stopping.is_set():
                self._process.terminate()
            return self._process.wait()
        except OSError as problem:
            return str(problem)
        finally:
            self._process = None
            os.close(ends)
            os.close(alive)
