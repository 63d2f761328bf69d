"""`make demo-ui`: a dashboard over two real local clusters, with jobs on them, until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ray_multicluster_scheduler.client.http import HttpService
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.config.find import this_user
from ray_multicluster_scheduler.config.installed import check_dashboard, check_ray, check_server
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.local.sandbox import served
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.request import JobRequest
from raymc_demo.programs import FUND
from raymc_demo.show import SETTINGS, Narrator, Stage, set_up

# The jobs of `make demo-ui`: first so many that some wait, then a few at a time, each for something to see.
#
# A job of a real cluster costs its head a process, so the jobs are few, and mostly asleep.


EPOCHS = f"{FUND}/epochs.py"
ACTORS = f"{FUND}/actors.py"
#: What the clusters of this demo have. Ray only counts it: the machine may have less.
MACHINES: Mapping[str, Mapping[str, Any]] = {
    "centos": {"cpus": 8, "gpus": 2, "tags": ("linux", "gpu")},
    "mac": {"cpus": 4, "tags": ("macos",)},
}
#: How many jobs of the first array there are: more than both clusters hold.
FIRST = 10

_EPOCHS = '''\
"""Prints what a training prints. Arguments: how many epochs, and how many attempts fail."""
import os
import sys
import time

epochs, failures = int(sys.argv[1]), int(sys.argv[2])
where, attempt = os.environ["RAY_MULTICLUSTER_CLUSTER"], int(os.environ["RAY_MULTICLUSTER_ATTEMPT"])
print(f"\\x1b[1mtraining on {where}\\x1b[0m, attempt {attempt}", flush=True)
for epoch in range(1, epochs + 1):
    time.sleep(1)
    bar = ("=" * round(20 * epoch / epochs)).ljust(20)
    colour = 32 if epoch > epochs / 2 else 33
    print(f"epoch {epoch}/{epochs} [{bar}] \\x1b[{colour}mloss {1 / epoch:.3f}\\x1b[0m", flush=True)
if attempt <= failures:
    print("\\x1b[31mthe loss is not a number\\x1b[0m", flush=True)
    raise FloatingPointError("loss is nan after the last epoch: is the learning rate too high?")
print("\\x1b[32mdone\\x1b[0m")
'''

_ACTORS = '''\
"""Two actors inside the job's own cluster, for as many seconds as the argument says."""
import sys
import time

import ray


@ray.remote(num_cpus=0)
class Infer:
    def infer(self, index, seconds):
        time.sleep(seconds)
        return f"{index}: up"


ray.init(log_to_driver=False)
actors = {index: Infer.options(name=f"infer-{index}").remote() for index in ("000300", "000905")}
print(ray.get([actor.infer.remote(index, float(sys.argv[1])) for index, actor in actors.items()]))
'''


def install(home: Path) -> None:
    """Write the programs below the home directory of a cluster."""
    for name, text in {EPOCHS: _EPOCHS, ACTORS: _ACTORS}.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class Workload:
    """Makes the jobs. `home` is that of the user, who works on one of the clusters."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def batches(self) -> Iterator[list[JobRequest]]:
        """Yield what is submitted together, without an end: the first batch, then one after the other."""
        turns: tuple[Callable[[int], list[JobRequest]], ...] = (
            self._chain,
            self._on_gpus,
            self._flaky,
            self._with_actors,
            self._report,
            self._broken,
            self._large,
        )
        yield [
            *self._broken(0),
            *self._on_gpus(0),
            *self._on_gpus(0, "finetune-again"),
            *self._flaky(0),
            *self._array(0, FIRST),
            *self._chain(0),
            *self._large(0),
        ]
        for number in count(1):
            yield self._array(number, 6)
            for turn in turns:
                yield turn(number)

    def _array(self, number: int, size: int) -> list[JobRequest]:
        name = f"sweep-{number}"
        return [
            self._epochs(
                f"{name}-{n}", "ann", seconds=14 + n % 8, group=name, tags=["linux"], entrypoint_num_cpus=1
            )
            for n in range(size)
        ]

    def _chain(self, number: int) -> list[JobRequest]:
        names = [f"{step}-{number}" for step in ("prepare", "train", "evaluate")]
        befores: list[list[str]] = [[], names[:1], names[1:2]]
        return [
            self._epochs(name, "bob", seconds=12, depends_on=before)
            for name, before in zip(names, befores, strict=True)
        ]

    def _on_gpus(self, number: int, name: str = "finetune") -> list[JobRequest]:
        claim = {"CPU": 1, "GPU": 2}
        return [
            self._epochs(
                f"{name}-{number}", "carol", seconds=30, claim=claim, entrypoint_num_gpus=2, tags=["gpu"]
            )
        ]

    def _flaky(self, number: int) -> list[JobRequest]:
        return [self._epochs(f"flaky-{number}", "bob", seconds=8, failures=1, max_retries=2)]

    def _broken(self, number: int) -> list[JobRequest]:
        return [self._epochs(f"broken-{number}", "carol", seconds=5, failures=9, max_retries=1)]

    def _report(self, number: int) -> list[JobRequest]:
        secret = {"env_vars": {"REPORT_TOKEN": "nobody-sees-this", "REGION": "cn-north"}}
        return [
            self._epochs(f"report-{number}", "ann", seconds=5, job_id="日报", priority=5, runtime_env=secret)
        ]

    def _large(self, number: int) -> list[JobRequest]:
        return [
            self._epochs(f"large-{number}", "carol", seconds=10, claim={"CPU": MACHINES["centos"]["cpus"]})
        ]

    def _with_actors(self, number: int) -> list[JobRequest]:
        command = f"python {self._home}/{ACTORS} 20"
        return [JobRequest(entrypoint=command, user="ann", submission_id=f"actors-{number}")]

    def _epochs(
        self,
        name: str,
        user: str,
        *,
        seconds: int,
        failures: int = 0,
        claim: Mapping[str, float] | None = None,
        **options: Any,
    ) -> JobRequest:
        return JobRequest(
            entrypoint=f"python {self._home}/{EPOCHS} {seconds} {failures}",
            user=user,
            submission_id=name,
            resource_requirements=claim or {"CPU": 2},
            **options,
        )


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
        with set_up(MACHINES) as stage, _running(stage, console, options.port) as service:
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
    for cluster in MACHINES:
        install(stage.home(cluster))
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
    batches, submitted = Workload(stage.home("mac")).batches(), 0
    while True:
        if submitted < most and sum(service.counts(_OPEN).values()) < MOST_OPEN:
            batch = next(batches)[: most - submitted]
            service.submit(batch)
            submitted += len(batch)
        time.sleep(TURN_S)


if __name__ == "__main__":
    sys.exit(main())
