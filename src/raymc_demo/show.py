"""The steps of the demo, written with the Python API."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler import (
    get_job_info,
    initialize_scheduler_environment,
    stop_job,
    submit_job,
    submit_jobs,
    wait_for_all_jobs,
)
from ray_multicluster_scheduler.background import end_schedulers
from ray_multicluster_scheduler.client.current import AnyClient
from ray_multicluster_scheduler.config.find import CONFIG_VARIABLE, HOME_VARIABLE
from ray_multicluster_scheduler.errors import JobsFailed
from ray_multicluster_scheduler.local import HeadSpec, Phase, Sandbox
from ray_multicluster_scheduler.local.sandbox import served
from raymc_demo import programs
from raymc_demo.programs import BROKEN, FUND, LONG, PREDICTIONS, SHARD, SPREAD

# The output of the demo: a few lines per step, in a terminal, a pipe or a recording.


#: Variables that override the address on Ray's command line.
_OTHER_ADDRESSES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
_INDENT = (0, 0, 0, 3)
_STYLES = {"SUCCEEDED": "green", "FAILED": "red", "STOPPED": "yellow"}


class Narrator:
    """Prints the steps of the demo and measures the time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the demo."""
        return time.monotonic() - self._began

    def title(self, number: int, sentence: str) -> None:
        """Begin a step."""
        self._console.print()
        self._console.print(
            Text.assemble((f"{number}. {sentence}", "bold"), (f"  ({self.elapsed_s:.0f} s)", "dim"))
        )

    def line(self, sentence: str) -> None:
        """Print what happens next."""
        self._console.print(Padding(Text(sentence), _INDENT))

    def fact(self, sentence: str) -> None:
        """Print a result without wrapping, so that a path stays in one piece."""
        self._console.print(Text("   " + sentence, style="cyan"), soft_wrap=True)

    def error(self, message: str) -> None:
        """Show the message that a user gets."""
        for line in message.splitlines():
            self._console.print(Text("   " + line, style="red"), soft_wrap=True)

    def phase(self, cluster: str, phase: Phase) -> None:
        """Print the progress of the start of a cluster."""
        self.fact(f"{cluster}: {phase.value} ({self.elapsed_s:.0f} s)")

    def raymc(self, *arguments: str) -> None:
        """Run the command line as a user would, and show what it prints."""
        self._run("raymc", "ray_multicluster_scheduler.cli.main", arguments)

    def ray(self, *arguments: str) -> None:
        """Run Ray's own command line, and show what it prints."""
        self._run("ray", "ray.scripts.scripts", arguments)

    def _run(self, name: str, module: str, arguments: Sequence[str]) -> None:
        self._console.print(Text(f"   $ {name} {' '.join(arguments)}", style="bold"), soft_wrap=True)
        environ = {**os.environ, "COLUMNS": str(self._console.width - 3)}
        for other in _OTHER_ADDRESSES:
            environ.pop(other, None)
        if self._console.is_terminal:
            environ["FORCE_COLOR"] = "1"
        else:  # a recording has the output of a terminal, without colours
            environ |= {"TTY_COMPATIBLE": "1", "TERM": "dumb", "LINES": "50"}
        command = [sys.executable, "-m", module, *arguments]
        done = subprocess.run(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        self._console.print(Padding(Text.from_ansi(done.stdout.strip("\n")), _INDENT), soft_wrap=True)

    def summary(self, jobs: Sequence[Mapping[str, Any]], *, root: Path) -> None:
        """Print which job ran where with which environment."""
        table = Table(
            "job", "state", "ran on", "home_dir of its environment", title="What ran where", box=SIMPLE
        )
        for job in jobs:
            home = job["runtime_env"].get("env_vars", {}).get("home_dir", "-").replace(str(root), "…")
            state = Text(job["state"], style=_STYLES.get(job["state"], ""))
            clusters = ", then ".join(attempt["cluster"] for attempt in job["attempts"])
            table.add_row(job["submission_id"], state, clusters, home)
        self._console.print()
        self._console.print(table)


# The setup of the demo: a temporary directory with two homes, and two real clusters.


#: As in the users' report, both jobs request 16 CPUs. Ray only counts them: the machine may have fewer.
CPUS = 16
HOMES = {"centos": "home/zorro", "mac": "Users/zorro"}
#: The conda environments of the report. They are shown, not used: this machine need not have them.
CONDAS = {"centos": "ts", "mac": "k8s"}
#: What each head has, in the words of `HeadSpec`.
Machines = Mapping[str, Mapping[str, Any]]
MACHINES: Machines = {name: {"cpus": CPUS} for name in HOMES}
#: Here a killed head ends its jobs at once, so the 90 s of production are not needed as evidence.
SETTINGS: Mapping[str, Any] = {
    "probe_interval_s": 1,
    "poll_interval_s": 0.5,
    "retry_delay_s": 1,
    "unreachable_after_s": 4,
    "lost_after_refused_s": 8,
}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The clusters, not started yet, and their files."""

    folder: Path
    sandbox: Sandbox

    @property
    def config(self) -> Path:
        """The clusters.yaml of the demo."""
        return self.folder / "clusters.yaml"

    @property
    def config_with_conda(self) -> Path:
        """The same clusters.yaml with the conda environments of the report, for a dry run."""
        return self.folder / "with-conda.yaml"

    def home(self, cluster: str) -> Path:
        """Return the home directory that a cluster's environment names."""
        return self.folder / HOMES[cluster]

    def write_config(self, settings: Mapping[str, Any] = SETTINGS) -> None:
        """Add the demo's settings to the sandbox's configuration; the programs read a copy in their home."""
        document: dict[str, Any] = yaml.safe_load(self.sandbox.config_path.read_text())
        document["scheduler"] = dict(settings)
        for path in (self.config, *(self.home(cluster) / programs.CONFIG for cluster in HOMES)):
            path.write_text(yaml.safe_dump(document, sort_keys=False))
        for name, entry in document["clusters"].items():
            entry["runtime_env"] = {"conda": CONDAS[name], **entry["runtime_env"]}
        self.config_with_conda.write_text(yaml.safe_dump(document, sort_keys=False))


@contextmanager
def set_up(machines: Machines = MACHINES) -> Iterator[Stage]:
    """Create the files; at the end remove them and stop every process, however the demo ends."""
    folder = Path(tempfile.mkdtemp(prefix="raymc-demo-")).resolve()
    state = folder / "raymc"
    os.environ[HOME_VARIABLE] = str(state)
    os.environ[CONFIG_VARIABLE] = str(folder / "clusters.yaml")
    try:
        _unwind_on_signals()
        yield Stage(folder=folder, sandbox=_sandbox(folder, state, machines))
    finally:
        _hold_signals()
        end_schedulers(state)
        Sandbox.clean(state)
        shutil.rmtree(folder)


def _sandbox(folder: Path, state: Path, machines: Machines) -> Sandbox:
    heads = []
    for name, below in HOMES.items():
        home = folder / below
        programs.install(home, name)
        heads.append(HeadSpec(name=name, runtime_env=programs.runtime_env(home), **machines[name]))
    return Sandbox(state, heads)


def _unwind_on_signals() -> None:
    """Make Ctrl-C, SIGHUP and SIGTERM end the demo with its cleanup, once."""

    def end(number: int, _frame: FrameType | None) -> None:
        _hold_signals()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    for each in _SIGNALS:
        signal.signal(each, end)


def _hold_signals() -> None:
    """Ignore signals during the cleanup: a second Ctrl-C must not leave clusters behind."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)


SHARDS = 12


class Show:
    """Runs the steps of the demo, which build on one another."""

    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        self._stage = stage
        self._say = narrator
        #: The user works on the Mac, so the submitted paths are those of the Mac.
        self._here = stage.home("mac")
        self._scheduler: AnyClient | None = None
        self._ran: list[str] = []

    def run(self) -> None:
        """Run all steps."""
        try:
            for number, (title, step) in enumerate(STEPS, start=1):
                self._say.title(number, title)
                step(self)
            self._say.summary([get_job_info(each) for each in self._ran], root=self._stage.folder)
        finally:
            if self._scheduler is not None:
                self._scheduler.stop()

    def start_clusters(self) -> None:
        """Start the clusters and the scheduler."""
        self._say.line(
            "They have the names, homes and environments of the report. Its conda environments `ts` and "
            "`k8s` need not exist on this machine, so these clusters do without, and step 2 shows them."
        )
        self._stage.sandbox.up(self._say.phase)
        self._stage.write_config()
        self._scheduler = initialize_scheduler_environment(self._stage.config)
        self._say.raymc("clusters")

    def send_predictions(self) -> None:
        """Show what each cluster would get, then fill both with one job each, with the paths of one."""
        self._say.line(
            "What each cluster would get, with the conda environments of the report. A dry run sends nothing."
        )
        program = f"{self._here}/{PREDICTIONS['indx_bunch_daily_predict']}"
        config = str(self._stage.config_with_conda)
        self._say.raymc("submit", "--dry-run", "--config", config, "--", "python", program)
        self._say.line(
            f"Both ask for {CPUS} CPUs, so one fills a cluster and the other goes to the next. Both are "
            "submitted with the Mac's paths. Each starts its actors on its own cluster, with `submit_actor`."
        )
        ids = [
            submit_job(
                f"python {self._here}//{program}",
                submission_id=name,
                metadata={"job_name": name},
                resource_requirements={"CPU": CPUS},
            )
            for name, program in PREDICTIONS.items()
        ]
        self._finish(ids)
        for each in ids:
            info = get_job_info(each)
            self._say.fact(f"{each} ran on {info['cluster']}")
            self._say.fact(f"  as   {info['entrypoint']}")
            self._say.fact(f"  said {info['logs'].strip().splitlines()[-1]}")

    def spread_actors(self) -> None:
        """Run a program with more actors than its cluster can hold, and list the actors meanwhile."""
        at_work, go_on = self._stage.folder / "all-at-work", self._stage.folder / "go-on"
        self._say.line(
            f"It starts three actors of {CPUS // 2} CPUs with `submit_actor`. Its cluster has {CPUS} CPUs, "
            "so the third one goes to the other cluster."
        )
        spread = submit_job(
            f"python {self._here}/{SPREAD} {CPUS // 2} {at_work} {go_on}", submission_id="spread"
        )
        while not at_work.exists() and get_job_info(spread)["status"] in {"PENDING", "RUNNING"}:
            time.sleep(0.2)
        self._say.raymc("ps")
        go_on.touch()
        self._finish([spread])
        self._say.fact(f"one ray.get: {get_job_info(spread)['logs'].strip().splitlines()[-1]}")

    def share_an_array(self) -> None:
        """Submit all jobs at once, ask why the large one waits, and count the jobs of each cluster."""
        shards = [
            {
                "entrypoint": f"python {self._here}/{SHARD} {i}",
                "submission_id": f"shard-{i}",
                "resource_requirements": {"CPU": 4},
                "group": "shards",
            }
            for i in range(SHARDS)
        ]
        large = {
            "entrypoint": f"python {self._here}/{LONG} 1",
            "submission_id": "large",
            "resource_requirements": {"CPU": CPUS},
        }
        ids = submit_jobs([*shards, large])
        self._wait_for_start("shard-0")
        self._say.line("Why does the large one wait?")
        self._say.raymc("explain", "large")
        self._finish(ids)
        share = Counter(get_job_info(each)["cluster"] for each in ids[:-1])
        for cluster, count in sorted(share.items()):
            self._say.fact(f"{count} of {SHARDS} shards ran on {cluster}")
        self._say.fact(f"large ran on {get_job_info('large')['cluster']} when that had become empty")

    def let_one_fail(self) -> None:
        """Wait for a program that cannot find its file."""
        broken = submit_job(f"python {self._here}/{BROKEN}", submission_id="broken", job_id="nightly report")
        self._ran.append(broken)
        try:
            wait_for_all_jobs([broken])
        except JobsFailed as error:
            self._say.error(str(error))

    def stop_one(self) -> None:
        """Stop a program that would run for an hour."""
        endless = submit_job(f"python {self._here}/{LONG} 3600", submission_id="endless")
        self._ran.append(endless)
        self._say.fact(f"endless runs on {self._wait_for_start(endless)}")
        self._say.fact(
            f"stop_job('endless') says {stop_job(endless)}; it is {get_job_info(endless)['state']}"
        )

    def kill_a_head(self) -> None:
        """Kill the cluster of a running job, and show the events of the job."""
        survivor = submit_job(
            f"python {self._here}/{LONG} 8", submission_id="survivor", preferred_cluster="mac"
        )
        self._ran.append(survivor)
        cluster = self._wait_for_start(survivor)
        self._say.line(f"It runs on {cluster}. Now all processes of that head are killed, as in a power cut.")
        self._stage.sandbox.kill(cluster)
        wait_for_all_jobs([survivor])
        self._say.raymc("events", survivor)
        self._say.raymc("clusters")

    def serve_stock_clients(self) -> None:
        """Submit with Ray's own command line to a server that represents all clusters."""
        self._say.line(
            "`raymc serve` answers as a Ray dashboard does. Whoever has Ray needs nothing of ours: not the "
            "package, not clusters.yaml. The directory is packed by Ray's client and goes where the job goes."
        )
        with served(self._stage.config, log=self._stage.folder / "server.log") as address:
            folder, program = self._here / FUND, SHARD.rpartition("/")[2]
            self._say.fact(f"raymc serve listens on {address}")
            job = ["--submission-id", "stock", "--working-dir", str(folder)]
            self._say.ray("job", "submit", "--address", address, *job, "--", "python", program, "99")
            self._say.raymc("status", "stock")
        self._ran.append("stock")

    def _finish(self, ids: Sequence[str]) -> None:
        self._ran.extend(ids)
        wait_for_all_jobs(ids)

    def _wait_for_start(self, submission_id: str) -> str:
        """Wait until a job runs, or has run, and return its cluster."""
        while (info := get_job_info(submission_id))["status"] == "PENDING":
            time.sleep(0.2)
        return str(info["cluster"])


STEPS: tuple[tuple[str, Callable[[Show], None]], ...] = (
    ("Two independent Ray clusters, each with its own environment", Show.start_clusters),
    ("The two jobs of the report, each with its own cluster's environment", Show.send_predictions),
    ("Actors of one job on both clusters, and one ray.get over all of them", Show.spread_actors),
    ("An array of small jobs over both clusters, and a large one that waits", Show.share_an_array),
    ("A job that fails: the error says where, why, and its last words", Show.let_one_fail),
    ("A job that is stopped: its id is enough, wherever it runs", Show.stop_one),
    ("A head is killed under a job, which then finishes elsewhere", Show.kill_a_head),
    ("A stock `ray job submit` to one address for all clusters", Show.serve_stock_clients),
)
