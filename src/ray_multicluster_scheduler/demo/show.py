"""The steps of the demo, written with the Python API."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from ray_multicluster_scheduler import (
    get_job_info,
    initialize_scheduler_environment,
    stop_job,
    submit_job,
    submit_jobs,
    wait_for_all_jobs,
)
from ray_multicluster_scheduler.client.current import AnyHandle
from ray_multicluster_scheduler.demo.narrator import Narrator
from ray_multicluster_scheduler.demo.programs import BROKEN, FUND, LONG, PREDICTIONS, SHARD, SPREAD
from ray_multicluster_scheduler.demo.stage import CPUS, Stage
from ray_multicluster_scheduler.errors import JobsFailed
from ray_multicluster_scheduler.local.server import served

SHARDS = 12


class Show:
    """Runs the steps of the demo, which build on one another."""

    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        self._stage = stage
        self._say = narrator
        #: The user works on the Mac, so the submitted paths are those of the Mac.
        self._here = stage.home("mac")
        self._scheduler: AnyHandle | None = None
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
