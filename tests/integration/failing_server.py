"""`raymc serve` whose engine breaks with the first job: python failing_server.py clusters.yaml DIRECTORY."""

import sys
from pathlib import Path

from ray_multicluster_scheduler.config import load_config
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.server.serve import serve
from ray_multicluster_scheduler.server.server_options import ServerOptions


def break_down(point: str) -> None:
    raise RuntimeError(f"a bug at {point}")


scheduler = EmbeddedScheduler(
    load_config(Path(sys.argv[1])), directory=Path(sys.argv[2]), environ={}, crash_point=break_down
)
serve(scheduler, ServerOptions(port=0), say=lambda line: print(line, file=sys.stderr, flush=True))
