"""Accepting one job, and until it runs: ours against `JobSubmissionClient` on the same real cluster."""

from __future__ import annotations

import time

from ray.job_submission import JobSubmissionClient

from benchmarks.measure import Report, Size, in_turns, main, ratio, summary
from benchmarks.real import scheduler_for, two_clusters
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.request import JobRequest

COMMAND = "true"
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 5, Size.FULL: 15}
POLL_S = 0.05
BEGUN = {JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED}


class Ours:
    """One job at a time through our scheduler."""

    def __init__(self, scheduler: EmbeddedScheduler) -> None:
        self._scheduler = scheduler
        self.to_running: list[float] = []

    def __call__(self) -> float:
        """Return how long it took to accept a job; note how long until it ran."""
        started = time.perf_counter()
        (job,) = self._scheduler.service.submit([JobRequest(entrypoint=COMMAND, user="ann")])
        accepted = time.perf_counter() - started
        mark = 0
        while self._scheduler.store.jobs.get(job.submission_id).state not in BEGUN:
            mark = self._scheduler.store.changes.wait(mark, timeout_s=1.0)
        self.to_running.append(time.perf_counter() - started)
        return accepted


class Direct:
    """One job at a time with Ray's own client."""

    def __init__(self, dashboard: str) -> None:
        self._client = JobSubmissionClient(dashboard)
        self.to_running: list[float] = []

    def __call__(self) -> float:
        """Return how long it took to accept a job; note how long until it ran."""
        started = time.perf_counter()
        job = self._client.submit_job(entrypoint=COMMAND)
        accepted = time.perf_counter() - started
        while self._client.get_job_status(job).value == "PENDING":
            time.sleep(POLL_S)
        self.to_running.append(time.perf_counter() - started)
        return accepted


def measure(size: Size) -> Report:
    """Measure how long it takes to accept a job, and until it runs."""
    with two_clusters() as (dashboards, config_path), scheduler_for(config_path) as scheduler:
        ours, direct = Ours(scheduler), Direct(dashboards["a"])
        ours(), direct()  # the first job of a head is slow for everybody
        ours.to_running.clear(), direct.to_running.clear()
        accepted = in_turns({"ours": ours, "direct": direct}, rounds=ROUNDS[size])
    return Report(
        name="submit",
        lines=(
            summary("ours: accept one job, fsynced", [s * 1000 for s in accepted["ours"]], unit="ms"),
            summary("JobSubmissionClient: accept one job", [s * 1000 for s in accepted["direct"]], unit="ms"),
            ratio("accept: ours / JobSubmissionClient", accepted["ours"], accepted["direct"], at_most=0.3),
            summary("ours: submit to running", ours.to_running, unit="s"),
            summary("JobSubmissionClient: submit to running", direct.to_running, unit="s"),
            ratio("submit to running: ours / direct", ours.to_running, direct.to_running, at_most=1.05),
        ),
        notes=("Default settings; the direct side asks for the status every 50 ms.",),
    )


if __name__ == "__main__":
    main(measure)
