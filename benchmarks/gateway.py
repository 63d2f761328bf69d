"""Fifty stock Ray clients that submit at once: to our server, and to the dashboard of one Ray head.

Each job asks for all CPUs of a cluster, and another one has them: all of them wait, there as here. What is
measured is how jobs are accepted, not how the machine copes with a hundred of them.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ray.job_submission import JobSubmissionClient

from benchmarks.measure import Line, Report, Size, main, percentile, ratio, summary
from benchmarks.real import CPUS, two_clusters
from ray_multicluster_scheduler.local.sandbox import served

COMMAND = "sleep 600"
CLIENTS = {Size.SMOKE: 4, Size.QUICK: 50, Size.FULL: 50}
#: Jobs of one round. Ray keeps a loop for each job that waits: as many as ours has would take minutes.
OURS = {Size.SMOKE: 8, Size.QUICK: 1_000, Size.FULL: 1_000}
THEIRS = {Size.SMOKE: 4, Size.QUICK: 100, Size.FULL: 100}
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 2, Size.FULL: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one round of submissions went."""

    per_s: float
    median_s: float
    p99_s: float
    #: Jobs that were accepted and that the same address does not know.
    lost: int


def submit_all(address: str, jobs: int, clients: int) -> Outcome:
    """Submit so many jobs from so many stock clients, all of which begin at the same moment."""
    ready = threading.Barrier(clients + 1)

    def one(number: int) -> list[tuple[str, float]]:
        client = JobSubmissionClient(address)
        done = []
        ready.wait()
        for _ in range(number, jobs, clients):
            begun = time.perf_counter()
            job = client.submit_job(entrypoint=COMMAND, entrypoint_num_cpus=CPUS)
            done.append((job, time.perf_counter() - begun))
        return done

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(one, number) for number in range(clients)]
        ready.wait()
        begun = time.perf_counter()
        answers = [answer for each in running for answer in each.result()]
        took_s = time.perf_counter() - begun
    known = {job.submission_id for job in JobSubmissionClient(address).list_jobs()}
    each_s = [seconds for _, seconds in answers]
    return Outcome(
        per_s=len(answers) / took_s,
        median_s=percentile(each_s, 50),
        p99_s=percentile(each_s, 99),
        lost=len({job for job, _ in answers} - known),
    )


def through_us(config_path: Path, jobs: int, clients: int) -> Outcome:
    """Submit to a server of ours over both clusters."""
    with (
        tempfile.TemporaryDirectory() as folder,
        served(config_path, log=Path(folder) / "log", store=Path(folder) / "store") as address,
    ):
        submit_all(address, clients, clients)  # as the head is, it is warm
        return submit_all(address, jobs, clients)


def measure(size: Size) -> Report:
    """Measure how many submissions are accepted in a second, and how long one takes."""
    clients, ours, theirs = CLIENTS[size], list[Outcome](), list[Outcome]()
    for _ in range(ROUNDS[size]):
        # New heads for each round: Ray cannot stop a job that waits for CPUs before it has got them.
        with two_clusters() as (dashboards, config_path):
            for address in dashboards.values():
                submit_all(address, 1, 1)  # it takes all CPUs: nothing starts while something is measured
            ours.append(through_us(config_path, OURS[size], clients))
            theirs.append(submit_all(dashboards["a"], THEIRS[size], clients))
    return Report(name="gateway", lines=tuple(_lines(size, ours, theirs)), notes=(_note(size),))


def _lines(size: Size, ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> Iterator[Line]:
    for name, rounds in (("ours", ours), ("Ray dashboard", theirs)):
        yield summary(f"{name}: submissions per second", [each.per_s for each in rounds], unit="/s")
        yield summary(f"{name}: median of a submit", [each.median_s * 1000 for each in rounds], unit="ms")
        yield summary(f"{name}: p99 of a submit", [each.p99_s * 1000 for each in rounds], unit="ms")
    rates = [each.per_s for each in ours], [each.per_s for each in theirs]
    slowest = [each.p99_s for each in ours], [each.p99_s for each in theirs]
    yield ratio("submissions per second: ours / Ray dashboard", *rates, at_least=3)
    yield ratio("p99 of a submit: ours / Ray dashboard", *slowest, at_most=0.3)
    lost = sum(each.lost for each in ours)
    yield Line(what=f"ours: lost of {OURS[size]:,} in flight", value=lost, at_most=0)


def _note(size: Size) -> str:
    return (
        f"{CLIENTS[size]} `JobSubmissionClient`s in threads of one process: {OURS[size]:,} jobs to "
        f"`raymc serve` over two clusters, {THEIRS[size]} to the dashboard of one of them. All of them wait "
        "for CPUs that another job has. Ours are fsynced."
    )


if __name__ == "__main__":
    main(measure)
