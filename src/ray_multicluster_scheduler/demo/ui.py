"""`make demo-ui`: a dashboard over two real local clusters, with jobs on them, until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from ray_multicluster_scheduler.client.http import HttpService
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.config.installed import check_dashboard, check_ray, check_server
from ray_multicluster_scheduler.config.user import this_user
from ray_multicluster_scheduler.demo import workload
from ray_multicluster_scheduler.demo.narrator import Narrator
from ray_multicluster_scheduler.demo.stage import SETTINGS, Stage, set_up
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.local.server import served
from ray_multicluster_scheduler.model.states import FINAL, JobState

#: Between two batches of jobs. A job starts processes: about one and a half seconds of one core.
TURN_S = 8.0
#: No more are submitted while so many have not ended, nor after so many altogether.
MOST_OPEN = 30
MOST_JOBS = 300
_OPEN = frozenset(JobState) - FINAL
#: A job that has waited so long goes first, so that the large one of each round runs while somebody looks.
_SETTINGS = {**SETTINGS, "starvation_after_s": 120, "quotas": {"bob": {"jobs": 100}}}

_LOOK_AT = """\
   Overview   how full the clusters are, why jobs wait, what has failed
   Jobs       an array and a chain in one row each; filter them, stop some
   a job      flaky-0: its attempts and coloured log; large-0: why it waits
   Timeline   which attempt ran where
   Submit     a dry run says where a job would go
   Clusters   drain one, and see where jobs go instead
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the demo until a signal ends it, and return its exit code."""
    parser = argparse.ArgumentParser(prog="make demo-ui", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="where the dashboard listens; 0: any free port")
    parser.add_argument(
        "--jobs", type=int, default=MOST_JOBS, metavar="N", help="submit no more than so many (%(default)s)"
    )
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    try:
        check_server()
        check_dashboard()
        check_ray("local clusters")
        with set_up(workload.MACHINES) as stage, _running(stage, console, options.port) as service:
            submit_all(service, stage, most=options.jobs)
    except KeyboardInterrupt:
        console.print("\nThe server and the clusters are stopped, and nothing is left behind.")
    except SchedulerError as error:
        console.print(Text(f"\nThe demo cannot go on: {error}", style="red"), soft_wrap=True)
        return 1
    return 130


@contextmanager
def _running(stage: Stage, console: Console, port: int) -> Iterator[HttpService]:
    """Start clusters and server, and say where to look."""
    console.print("Two Ray clusters are starting on this machine, which takes about 20 seconds.")
    stage.sandbox.up(Narrator(console).phase)
    stage.write_config(_SETTINGS)
    for cluster in workload.MACHINES:
        workload.install(stage.home(cluster))
    options = ("--dashboard", "--port", str(port))
    log = stage.folder / "server.log"
    with served(stage.config, log=log, store=stage.folder / "store", options=options) as address:
        console.print(
            f"\nThe dashboard is at [bold]{address}/[/bold], for everybody on this machine.\nLook at:\n"
        )
        console.print(_LOOK_AT)
        console.print(f"Jobs come every {TURN_S:.0f} seconds. Ctrl-C stops everything.")
        service = HttpService(ServerAddress(url=address, named_by="make demo-ui"), user=this_user())
        try:
            yield service
        finally:
            service.close()


def submit_all(service: HttpService, stage: Stage, *, most: int) -> None:
    """Submit a batch each turn, unless enough jobs are there, for ever: a signal ends it."""
    batches, submitted = workload.Workload(stage.home("mac")).batches(), 0
    while True:
        if submitted < most and sum(service.counts(_OPEN).values()) < MOST_OPEN:
            batch = next(batches)[: most - submitted]
            service.submit(batch)
            submitted += len(batch)
        time.sleep(TURN_S)


if __name__ == "__main__":
    sys.exit(main())
