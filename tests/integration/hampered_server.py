"""`raymc serve` with faults that come and go: python hampered_server.py clusters.yaml FOLDER.

While the folder holds a file `blocked`, SIGUSR1 keeps the main thread, which answers requests, from its work.
While it holds a file `broken`, the engine breaks at the next thing that it does for a job.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.config import load_config
from ray_multicluster_scheduler.config.store_place import store_place
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.scheduler_process import process
from ray_multicluster_scheduler.server import serve
from ray_multicluster_scheduler.server.server_options import ServerOptions

folder = Path(sys.argv[2])


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def burn(*_: Any) -> None:
    say("burning")
    while (folder / "blocked").exists():
        pass


def break_down(point: str) -> None:
    if (folder / "broken").exists():
        raise RuntimeError(f"a bug at {point}")


def run_server(path: str) -> None:
    signal.signal(signal.SIGUSR1, burn)
    serve.command = lambda config: [sys.executable, __file__, str(config), str(folder)]
    serve.serve(serve.ServedScheduler.open(path), ServerOptions(port=0), say=say)


def run_scheduler(path: str, server: int, address: str) -> int:
    config = load_config(Path(path))
    place = store_place(config, os.environ)
    broken = EmbeddedScheduler(config, directory=place.directory, environ=os.environ, crash_point=break_down)
    EmbeddedScheduler.open = lambda *_: broken  # type: ignore[assignment,method-assign]
    return process.run_for_server(Path(path), server=server, job_address=address)


if sys.argv[3:]:
    _, server, _, address = sys.argv[3:]
    sys.exit(run_scheduler(sys.argv[1], int(server), address))
run_server(sys.argv[1])
