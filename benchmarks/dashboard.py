"""The dashboard: the list of 100,000 jobs, how late an open page shows a change, and what 50 of them cost.

The list is asked for as a browser asks, until its last byte. A change: a job in the queue is stopped. The
delay is from the time that is written with it until chromium has put the new state into the page.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import yaml

from benchmarks.filled import fill
from benchmarks.measure import Line, Report, Size, in_turns, main, ratio, summary
from benchmarks.open_pages import open_pages
from benchmarks.talking import talking_clusters
from ray_multicluster_scheduler.local.sandbox import served
from ray_multicluster_scheduler.store import open_store

JOBS = {Size.SMOKE: (10, 1_000), Size.QUICK: (100, 100_000), Size.FULL: (100, 100_000)}
ROUNDS = {Size.SMOKE: 1, Size.QUICK: 7, Size.FULL: 15}
#: Requests in a round: one alone takes too short a time.
REQUESTS = {Size.SMOKE: 1, Size.QUICK: 5, Size.FULL: 5}
CHANGES = {Size.SMOKE: 1, Size.QUICK: 10, Size.FULL: 30}
PAGES = {Size.SMOKE: 3, Size.QUICK: 50, Size.FULL: 50}
WATCHED_S = {Size.SMOKE: 2.0, Size.QUICK: 30.0, Size.FULL: 120.0}
#: What is open, in turns.
PATHS = ("/", "/jobs", "/jobs", "/clusters", "/timeline")
REQUEST_S = 60.0
PATIENCE_MS = 30_000
#: The times that a page has said another state, in the browser's clock, which is ours.
_WATCH = """() => {
  window.seen = [];
  const chip = document.querySelector("[data-test=job-state]");
  new MutationObserver(() => window.seen.push(Date.now() / 1000))
    .observe(chip, {subtree: true, childList: true, characterData: true});
}"""


@contextmanager
def a_server(jobs: int) -> Iterator[str]:
    """Run a server with so many jobs in its store that have ended."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = stack.enter_context(talking_clusters(("a", "b"), cpus=8))
        clusters = {
            name: {"head_address": url.removeprefix("http://"), "dashboard": url}
            for name, url in found.items()
        }
        (folder / "clusters.yaml").write_text(yaml.safe_dump({"clusters": clusters}))
        open_store(folder / "store").close()
        fill(folder / "store", jobs, waiting=False)
        yield stack.enter_context(
            served(
                folder / "clusters.yaml", log=folder / "log", store=folder / "store", options=["--dashboard"]
            )
        )


def ask(address: str, path: str, body: Any = None) -> str:
    """Ask a server, and return its whole answer."""
    request = urllib.request.Request(
        address + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Accept": "text/html", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
        text: str = answer.read().decode()
        return text


def _list_ms(address: str, requests: int) -> float:
    started = time.perf_counter()
    for _ in range(requests):
        ask(address, "/jobs")
    return (time.perf_counter() - started) * 1000 / requests


def _submit(address: str, **job: Any) -> str:
    name: str = json.loads(ask(address, "/api/v1/jobs", {"entrypoint": "talk", **job}))["submission_id"]
    return name


def _stop(address: str, job: str) -> None:
    ask(address, "/api/v1/jobs/stop", {"submission_ids": [job], "reason": "measured"})


def _delays_ms(address: str, changes: int) -> list[float] | None:
    """Return how late a browser showed changes; None: there is no browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - nobody else needs it

    delays = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page, first = browser.new_page(), _submit(address)
        for _ in range(changes):
            job = _submit(address, depends_on=[first])  # so it stays in the queue
            page.goto(f"{address}/jobs/{job}")
            page.wait_for_function("window.did_handshake === true", timeout=PATIENCE_MS)
            page.evaluate(_WATCH)
            _stop(address, job)
            page.wait_for_function("window.seen.length > 0", timeout=PATIENCE_MS)
            changed = json.loads(ask(address, f"/api/v1/jobs/{job}"))["changed_at"]
            delays.append((page.evaluate("window.seen[0]") - changed) * 1000)
        browser.close()
        _stop(address, first)
    return delays


async def _cost(address: str, pages: int, watched_s: float) -> tuple[float, float, int]:
    """Return the cores and the memory in MB that a server with open pages uses while jobs come and go."""
    async with open_pages(address, list(islice(cycle(PATHS), pages))) as opened:
        await asyncio.sleep(2)  # what the pages ask for at first is over
        before, begun = await asyncio.to_thread(_used, address), time.monotonic()
        await asyncio.to_thread(_come_and_go, address, watched_s)
        after, took = await asyncio.to_thread(_used, address), time.monotonic() - begun
        heard = sum(page.messages > 0 for page in opened)
    return (after[0] - before[0]) / took, after[1] / 1e6, heard


def _come_and_go(address: str, for_s: float) -> None:
    """Submit a job each second, and stop the one before it."""
    last, ends_at = None, time.monotonic() + for_s
    while time.monotonic() < ends_at:
        job = _submit(address)
        if last is not None:
            _stop(address, last)
        last = job
        time.sleep(1)


def _used(address: str) -> tuple[float, float]:
    """Return the seconds of the processor and the bytes that a server has used."""
    metrics = ask(address, "/metrics")
    cpu = re.search(r"^process_cpu_seconds_total (\S+)$", metrics, re.M)
    memory = re.search(r"^process_resident_memory_bytes (\S+)$", metrics, re.M)
    if cpu is None or memory is None:
        raise LookupError("the server tells nothing of its process")
    return float(cpu[1]), float(memory[1])


def measure(size: Size) -> Report:
    """Measure the list, the delay and the cost of open pages."""
    few, many = JOBS[size]
    with ExitStack() as stack:
        servers = {count: stack.enter_context(a_server(count)) for count in (few, many)}
        sides: dict[str, Callable[[], float]] = {
            f"{count:,}": partial(_list_ms, address, REQUESTS[size]) for count, address in servers.items()
        }
        in_turns(sides, rounds=1)  # the first requests load modules and compile templates
        found = in_turns(sides, rounds=ROUNDS[size])
        delays = _delays_ms(servers[many], CHANGES[size])
        cores, memory_mb, heard = asyncio.run(_cost(servers[many], PAGES[size], WATCHED_S[size]))
    return Report(
        name="dashboard",
        lines=tuple(_lines(size, found, delays, (cores, memory_mb, heard))),
        notes=(_note(size, browser=delays is not None),),
    )


def _lines(
    size: Size,
    found: dict[str, list[float]],
    delays: Sequence[float] | None,
    cost: tuple[float, float, int],
) -> Iterator[Line]:
    few, many = found
    for count, took in found.items():
        yield summary(f"the list of jobs, {count} in the store", took, unit="ms")
    yield ratio(f"the list of jobs: {many} / {few} jobs", found[many], found[few], at_most=3.0)
    if delays is not None:
        latest = max(delays)
        yield summary("a change is seen in the browser: median", delays, unit="ms")
        yield Line(what="a change is seen in the browser: the latest", value=latest, unit="ms", at_most=1000)
    pages, (cores, memory_mb, heard) = PAGES[size], cost
    yield Line(what=f"{pages} open pages: processor of the server", value=cores, unit="cores", at_most=1.0)
    yield Line(what=f"{pages} open pages: memory of the server", value=memory_mb, unit="MB", at_most=500.0)
    yield Line(what=f"pages that heard of changes, of {pages}", value=heard, at_least=pages)


def _note(size: Size, *, browser: bool) -> str:
    text = (
        f"`raymc serve --dashboard` over two fake clusters. {PAGES[size]} pages ({', '.join(PATHS)}, in "
        f"turns) are open for {WATCHED_S[size]:g} s, while each second one job is submitted and one stopped."
    )
    return text if browser else f"{text} No browser here: how late it shows a change was not measured."


if __name__ == "__main__":
    main(measure)
