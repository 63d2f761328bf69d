"""`python -m ray_multicluster_scheduler.scheduler_process`: a scheduler, started by a program or by a server.

People use `raymc scheduler run`, which does the same in the foreground.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path


def main() -> None:
    """Read the arguments and run until the scheduler ends."""
    parser = argparse.ArgumentParser(prog="ray_multicluster_scheduler.scheduler_process")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--lock", type=int, help="descriptor of the lock that was taken for this process")
    parser.add_argument("--ready", type=int, help="descriptor on which to say that it works, or why not")
    parser.add_argument("--server", type=int, help="descriptor that is at its end when the server has ended")
    parser.add_argument("--job-address", help="where jobs reach the server")
    asked = parser.parse_args()
    if asked.server is None and os.fork():
        os._exit(0)  # the starter waits for this one only; the scheduler belongs to nobody
    from ray_multicluster_scheduler.scheduler_process import process  # noqa: PLC0415 - a fork comes before all threads

    if asked.server is None:
        sys.exit(process.run_in_background(asked.config, lock_file=asked.lock, ready=asked.ready))
    sys.exit(process.run_for_server(asked.config, server=asked.server, job_address=asked.job_address))


if __name__ == "__main__":
    main()
