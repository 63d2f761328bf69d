"""How late a change is told over HTTP: to one who waits, and while 2,000 wait and 300 follow logs.

Server, fake clusters, those who wait and those who follow logs are processes of their own. A change: a job in
the queue is stopped. The delay is from the time that is written with it until the waiter has read it.
"""

from __future__ import annotations

import hashlib
import json
import resource
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.listeners import Heard, Listeners, Told, tail, wait
from benchmarks.measure import Line, Report, Size, main, percentile, ratio, summary
from benchmarks.talking import talking_clusters
from ray_multicluster_scheduler.local.sandbox import served

WAITS = {Size.SMOKE: 20, Size.QUICK: 2_000, Size.FULL: 2_000}
TAILS = {Size.SMOKE: 6, Size.QUICK: 300, Size.FULL: 300}
#: Jobs that run, and are followed: each by many.
RUNNING = {Size.SMOKE: 2, Size.QUICK: 20, Size.FULL: 20}
CHANGES = {Size.SMOKE: 5, Size.QUICK: 200, Size.FULL: 200}
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 1, Size.FULL: 3}
NAMES = ("a", "b")
#: Between two changes.
PAUSE_S = 0.05
#: A change is told within a second.
MOST_MS = 1000.0
START_S = 120.0
REQUEST_S = 60.0
OPEN_FILES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How late changes were told in one round, in milliseconds, and what was heard of the logs."""

    one: Sequence[float]
    many: Sequence[float]
    #: The change that all wait for.
    common: Sequence[float]
    whole: int
    size: int


class Server:
    """What is asked of the server, one request after another."""

    def __init__(self, address: str, dashboards: Mapping[str, str]) -> None:
        self.address = address
        self._dashboards = dashboards

    def submit(self, count: int) -> list[str]:
        """Submit so many jobs; return their ids."""
        jobs = self._ask("POST", "/api/v1/jobs/batch", {"jobs": [{"entrypoint": "talk"}] * count})["jobs"]
        return [job["submission_id"] for job in jobs]

    def stop(self, ids: Sequence[str]) -> None:
        """Stop these jobs."""
        self._ask("POST", "/api/v1/jobs/stop", {"submission_ids": ids, "reason": "measured"})

    def jobs(self, ids: Sequence[str]) -> Mapping[str, Any]:
        """Return what is known of these jobs."""
        found: Mapping[str, Any] = self._ask("POST", "/api/v1/jobs/get-many", {"submission_ids": ids})["jobs"]
        return found

    def until(self, ids: Sequence[str], met: Callable[[Mapping[str, Any]], bool]) -> Mapping[str, Any]:
        """Wait until each of these jobs is so."""
        ends_at = time.monotonic() + START_S
        while not all(map(met, (found := self.jobs(ids)).values())):
            if time.monotonic() > ends_at:
                raise TimeoutError(f"the jobs are still {sorted({job['state'] for job in found.values()})}")
            time.sleep(0.1)
        return found

    def log(self, job: Mapping[str, Any]) -> bytes:
        """Return a job's log as its cluster has it."""
        url = f"{self._dashboards[job['cluster']]}/api/jobs/{job['remote_id']}/logs"
        with urllib.request.urlopen(url, timeout=REQUEST_S) as answer:
            text: str = json.load(answer)["logs"]
        return text.encode()

    def _ask(self, method: str, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"{self.address}{path}",
            method=method,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
            return json.load(answer)


@contextmanager
def a_server(running: int) -> Iterator[Server]:
    """Run a server on clusters that have room for so many jobs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(OPEN_FILES, hard)), hard))  # the server's too
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = stack.enter_context(talking_clusters(NAMES, cpus=running / len(NAMES)))
        clusters = {
            name: {"head_address": url.removeprefix("http://"), "dashboard": url}
            for name, url in found.items()
        }
        config = folder / "clusters.yaml"
        config.write_text(yaml.safe_dump({"clusters": clusters}))
        address = stack.enter_context(served(config, log=folder / "log", store=folder / "store"))
        yield Server(address, found)


def one_round(server: Server, size: Size) -> Outcome:
    """Tell changes to one, then to one of many."""
    running = server.submit(RUNNING[size])
    server.until(running, lambda job: job["state"] == "RUNNING")
    queued, (common,) = server.submit(WAITS[size] + CHANGES[size]), server.submit(1)
    many, one = queued[: WAITS[size]], queued[WAITS[size] :]
    alone = _told(server, [one], one)
    followed = [running[number % len(running)] for number in range(TAILS[size])]
    tails = Listeners(tail, server.address, followed)
    changed = [many[number * len(many) // CHANGES[size]] for number in range(CHANGES[size])]
    told = _told(server, [[each, common] for each in many], [*changed, common])
    server.stop(many)  # first, so that none of them gets the room of those that run
    server.stop(running)
    heard: Sequence[Heard] = tails.found()
    logs = {name: server.log(job) for name, job in server.jobs(running).items()}
    return Outcome(
        one=[each.delay_ms for each in alone],
        many=[each.delay_ms for each in told if each.submission_id != common],
        common=[each.delay_ms for each in told if each.submission_id == common],
        whole=sum(each.digest == hashlib.sha256(logs[each.submission_id]).hexdigest() for each in heard),
        size=sum(each.size for each in heard),
    )


def _told(server: Server, waits: Sequence[Sequence[str]], changed: Sequence[str]) -> Sequence[Told]:
    """Stop jobs one by one; return how late each of those who wait for them was told."""
    stops = sum(len(set(changed).intersection(ids)) for ids in waits)
    waiting = Listeners(wait, server.address, waits, stops)
    for each in changed:
        server.stop([each])
        time.sleep(PAUSE_S)
    told: Sequence[Told] = waiting.found()
    return told


def measure(size: Size) -> Report:
    """Measure how late a change is told, and whether all logs come whole."""
    with a_server(RUNNING[size]) as server:
        rounds = [one_round(server, size) for _ in range(ROUNDS[size])]
    return Report(name="streams", lines=tuple(_lines(size, rounds)), notes=(_note(size),))


def _lines(size: Size, rounds: Sequence[Outcome]) -> Iterator[Line]:
    many = f"{WAITS[size]:,} wait, {TAILS[size]} follow logs"
    for what, percent in (("median", 50), ("p99", 99)):
        alone = [percentile(each.one, percent) for each in rounds]
        among = [percentile(each.many, percent) for each in rounds]
        yield summary(f"one waits: {what}", alone, unit="ms")
        yield summary(f"{many}: {what}", among, unit="ms", **({"at_most": MOST_MS} if percent > 50 else {}))
        yield ratio(f"{what}: {many} / one waits", among, alone)
    yield Line(what="one waits: the latest", value=max(max(each.one) for each in rounds), unit="ms")
    latest, last = max(max(each.many) for each in rounds), max(max(each.common) for each in rounds)
    yield Line(what=f"{many}: the latest", value=latest, unit="ms", at_most=MOST_MS)
    yield Line(what=f"all {WAITS[size]:,} wait for one job: the last", value=last, unit="ms", at_most=MOST_MS)
    delivered = sum(each.size for each in rounds) / 2**20
    yield Line(what=f"delivered by {TAILS[size]} tails", value=delivered, unit="MiB")
    whole = min(each.whole for each in rounds)
    yield Line(what=f"whole logs among {TAILS[size]}", value=whole, at_least=TAILS[size])


def _note(size: Size) -> str:
    return (
        f"`raymc serve` over two fake clusters; {CHANGES[size]} changes a round, one every {PAUSE_S:g} s. "
        "Server, clusters, those who wait and those who follow logs are processes of their own. The delay "
        "is from the time in the row that is written, its commit included, until the client has read it."
    )


if __name__ == "__main__":
    main(measure)
