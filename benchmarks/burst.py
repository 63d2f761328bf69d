"""A burst of short jobs on two real clusters: through us, and by hand with two `JobSubmissionClient`s.

`flood`: every job is sent at once, to the clusters in turns. `round robin`: in turns too, but each cluster
gets its next job when one of its two before has ended, as a careful script would do it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from ray.job_submission import JobSubmissionClient

from benchmarks.measure import Line, Report, Size, main, ratio, summary
from benchmarks.real import scheduler_for, two_clusters
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.request import JobRequest

COMMAND = "python -c 'import time; time.sleep(0.2)'"
JOBS = {Size.SMOKE: 2, Size.QUICK: 12, Size.FULL: 40}
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 2, Size.FULL: 4}
ENDED = {"SUCCEEDED", "FAILED", "STOPPED"}
CAREFUL = 2
POLL_S = 0.5
CORES = os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one burst went."""

    makespan_s: float
    #: From the moment Ray was asked to start a job to its end as seen by the same side, in the median.
    dispatch_to_done_s: float
    failures: int
    #: What all cores of the machine worked meanwhile, in seconds.
    cpu_s: float = 0.0


def busy_s() -> float:
    """Return how long the cores of this machine have worked since it started, all of them together."""
    user, nice, system, _idle, _waiting, *interrupts = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, *interrupts))) / os.sysconf("SC_CLK_TCK")


def with_cpu(side: Callable[[], Outcome]) -> Outcome:
    """Measure what a burst costs the machine, whoever does the work."""
    before = busy_s()
    return replace(side(), cpu_s=busy_s() - before)


def by_hand(dashboards: Mapping[str, str], jobs: int, *, in_flight: int) -> Outcome:
    """Send a burst with Ray's own client, so many at a time to each cluster."""
    started, taken, failures = time.monotonic(), [], 0

    def one(client: JobSubmissionClient) -> tuple[float, bool]:
        sent = time.monotonic()
        job = client.submit_job(entrypoint=COMMAND)
        while (status := client.get_job_status(job).value) not in ENDED:
            time.sleep(POLL_S)
        return time.monotonic() - sent, status == "SUCCEEDED"

    pools = {url: ThreadPoolExecutor(in_flight) for url in dashboards.values()}
    clients = {url: JobSubmissionClient(url) for url in pools}
    urls = [list(pools)[number % len(pools)] for number in range(jobs)]
    for future in [pools[url].submit(one, clients[url]) for url in urls]:
        took_s, well = future.result()
        taken.append(took_s)
        failures += not well
    for pool in pools.values():
        pool.shutdown()
    return Outcome(
        makespan_s=time.monotonic() - started,
        dispatch_to_done_s=statistics.median(taken),
        failures=failures,
    )


def through_us(config_path: Path, jobs: int) -> Outcome:
    """Submit a burst to our scheduler."""
    with scheduler_for(config_path) as scheduler:
        while any(each["health"] != "HEALTHY" for each in scheduler.cluster_details()):
            time.sleep(0.1)  # by hand nobody has to look first either
        started, mark = time.monotonic(), 0
        made = scheduler.service.submit([JobRequest(entrypoint=COMMAND, user="ann") for _ in range(jobs)])
        ids = [job.submission_id for job in made]
        rows = scheduler.store.jobs.get_many(ids)
        while any(job.state not in FINAL for job in rows.values()):
            scheduler.ensure_scheduled()
            mark = scheduler.store.changes.wait(mark, timeout_s=1.0)
            rows = scheduler.store.jobs.get_many(ids)
        makespan_s = time.monotonic() - started
        taken = [(job.changed_at - job.placed_at) for job in rows.values() if job.placed_at is not None]
        failures = sum(job.state is not JobState.SUCCEEDED for job in rows.values())
    return Outcome(makespan_s=makespan_s, dispatch_to_done_s=statistics.median(taken), failures=failures)


def measure(size: Size) -> Report:
    """Measure bursts on two real clusters."""
    jobs, found = JOBS[size], {"ours": [], "flood": [], "round robin": []}
    with two_clusters() as (dashboards, config_path):
        by_hand(dashboards, len(dashboards), in_flight=1)  # the first job of a head is slow for everybody
        sides: dict[str, Callable[[], Outcome]] = {
            "ours": lambda: through_us(config_path, jobs),
            "flood": lambda: by_hand(dashboards, jobs, in_flight=jobs),
            "round robin": lambda: by_hand(dashboards, jobs, in_flight=CAREFUL),
        }
        for number in range(ROUNDS[size]):
            for name in sides if number % 2 == 0 else reversed(sides):
                found[name].append(with_cpu(sides[name]))
    spans = {name: [each.makespan_s for each in rounds] for name, rounds in found.items()}
    taken = {name: [each.dispatch_to_done_s for each in rounds] for name, rounds in found.items()}
    lines = [summary(f"{name}: makespan of {jobs} jobs", values, unit="s") for name, values in spans.items()]
    lines += [summary(f"{name}: dispatch to done", values, unit="s") for name, values in taken.items()]
    lines += [
        ratio("makespan: ours / flood", spans["ours"], spans["flood"], at_most=0.75),
        ratio("makespan: ours / round robin", spans["ours"], spans["round robin"]),
        ratio("dispatch to done: ours / flood", taken["ours"], taken["flood"], at_most=0.3),
        *(
            summary(f"{name}: CPU time per job", [each.cpu_s / jobs for each in rounds], unit="s")
            for name, rounds in found.items()
        ),
        *(
            summary(
                f"{name}: how busy the {CORES} cores were",
                [each.cpu_s / each.makespan_s / CORES for each in rounds],
                unit="×",
            )
            for name, rounds in found.items()
        ),
        Line(what="ours: failures", value=sum(each.failures for each in found["ours"]), at_most=0),
        Line(what="flood: failures", value=sum(each.failures for each in found["flood"])),
    ]
    return Report(name="burst", lines=tuple(lines), notes=(f"{COMMAND}; two heads with 4 CPUs each.",))


if __name__ == "__main__":
    main(measure)
