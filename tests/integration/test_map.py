"""Maps and executors on clusters inside this process: what users see of them."""

import asyncio
import logging
import re
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, as_completed, wait
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import PATIENCE_S, until

from ray_multicluster_scheduler import MultiClusterExecutor, aio, map_over_clusters, put_everywhere
from ray_multicluster_scheduler.client.map import summary
from ray_multicluster_scheduler.errors import InvalidRequest, ItemFailed, NeverFits, OutcomeUnknown
from ray_multicluster_scheduler.tasks.map_plan import FEW_ITEMS
from ray_multicluster_scheduler.tasks.map_run import Progress
from ray_multicluster_scheduler.testing import InProcessClusters

TWO = {"a": {"CPU": 2.0}, "b": {"CPU": 2.0}}


@pytest.fixture
def clusters() -> Iterator[InProcessClusters]:
    with InProcessClusters(TWO) as running:
        yield running
        until(lambda: not running.used("a") and not running.used("b"))


class Gate:
    """A function that waits for its gate to be opened; notes what it was called with, and by which worker."""

    def __init__(self, *closed: int) -> None:
        self.closed = set(closed)
        self.open = threading.Event()
        self.calls = Counter[int]()
        self.clusters = Counter[str]()

    def __call__(self, item: int) -> int:
        self.calls[item] += 1
        self.clusters[threading.current_thread().name.split("-")[0]] += 1
        if not self.closed or item in self.closed:
            self.open.wait(PATIENCE_S)
        return item * 2


def reciprocal(number: int) -> float:
    return 1 / number


@pytest.mark.parametrize("chunk", [None, 1, 7])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_results_come_in_the_order_of_the_items(
    clusters: InProcessClusters, count: int, chunk: int | None
) -> None:
    assert list(map_over_clusters(str, range(count), chunk=chunk)) == list(map(str, range(count)))


def test_items_go_to_all_clusters_that_have_room(clusters: InProcessClusters) -> None:
    gate = Gate()
    results = map_over_clusters(gate, range(50))
    threading.Timer(0, lambda: (until(lambda: sum(gate.clusters.values()) == 4), gate.open.set())).start()
    assert list(results) == [item * 2 for item in range(50)]
    assert set(gate.clusters) == {"a", "b"}


def test_a_call_that_claims_more_gets_fewer_workers(clusters: InProcessClusters) -> None:
    gate = Gate()
    results = map_over_clusters(gate, range(50), cpus=2)
    ended = threading.Thread(target=lambda: list(results))
    ended.start()
    until(lambda: sum(gate.clusters.values()) == 2)
    assert (clusters.used("a"), clusters.used("b")) == ({"CPU": 2}, {"CPU": 2})
    gate.open.set()
    ended.join(PATIENCE_S)


def test_without_order_a_slow_item_does_not_hold_the_others_back(clusters: InProcessClusters) -> None:
    gate = Gate(0)
    results = map_over_clusters(gate, range(100), ordered=False, chunk=1)
    # One item may have been sent after the slow one, before anybody knew that it is slow.
    others = [next(results) for _ in range(98)]
    assert 0 not in others
    gate.open.set()
    assert sorted([*others, *results]) == [item * 2 for item in range(100)]


def test_in_order_a_slow_item_holds_the_input_back(clusters: InProcessClusters) -> None:
    gate, read = Gate(0), Counter[str]()

    def items() -> Iterator[int]:
        for item in range(10_000):
            read["items"] += 1
            yield item

    results = map_over_clusters(gate, items(), chunk=1)
    first: list[int] = []
    waiting = threading.Thread(target=lambda: first.append(next(results)))
    waiting.start()
    # All that was let in has ended but the slow one, and perhaps the next one of its worker.
    until(lambda: sum(gate.calls.values()) >= FEW_ITEMS - 1)
    assert read["items"] <= FEW_ITEMS + 1
    gate.open.set()
    waiting.join(PATIENCE_S)
    assert first == [0]
    assert sum(1 for _ in results) == 9_999


def test_a_map_that_is_left_early_ends_and_reads_no_further(clusters: InProcessClusters) -> None:
    read = Counter[str]()

    def items() -> Iterator[int]:
        while True:
            read["items"] += 1
            yield read["items"]

    for result in map_over_clusters(str, items()):
        if result == "100":
            break
    # The fixture sees that the workers are gone.
    until(lambda: not any(thread.name.startswith("raymc-map") for thread in threading.enumerate()))


def test_only_what_was_in_flight_on_a_lost_cluster_is_run_again(
    clusters: InProcessClusters, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(*range(5, 400))
    results = map_over_clusters(gate, range(400), chunk=1, ordered=False)
    found = [next(results) for _ in range(5)]
    until(lambda: sum(gate.calls.values()) == 9)  # each of the four workers has an item that waits
    with caplog.at_level(logging.WARNING):
        clusters.kill("a")
        gate.open.set()
        found += list(results)
    assert sorted(found) == [item * 2 for item in range(400)]
    assert len([item for item, times in gate.calls.items() if times > 1]) == 2
    told = re.findall(r"on cluster 'a' \(it was killed\): (\d+) items in flight are run again", caplog.text)
    assert 2 <= sum(map(int, told)) <= 4  # what had not begun is counted too


def test_an_item_that_was_lost_too_often_says_where_and_that_it_may_have_been_run(
    clusters: InProcessClusters,
) -> None:
    gate = Gate(0)
    results = map_over_clusters(gate, range(4), retries=0)
    threading.Timer(0, lambda: (until(lambda: gate.calls[0]), clusters.kill("a"))).start()
    with pytest.raises(OutcomeUnknown, match="may have been run; `retries` says how often") as raised:
        list(results)
    gate.open.set()
    cause = raised.value.__cause__
    assert isinstance(cause, ItemFailed)
    assert (cause.item, cause.number, cause.cluster) == (0, 0, "a")


def test_a_cluster_that_comes_back_gets_work_again(clusters: InProcessClusters) -> None:
    clusters.kill("a")
    gate = Gate()
    results = map_over_clusters(gate, range(300), chunk=1)
    done = threading.Thread(target=lambda: list(results))
    done.start()
    until(lambda: gate.clusters["b"] == 2)
    clusters.revive("a")
    until(lambda: gate.clusters["a"] == 2)
    gate.open.set()
    done.join(PATIENCE_S)


def test_where_no_cluster_has_room_a_map_waits_for_it(clusters: InProcessClusters) -> None:
    gate = Gate()
    with MultiClusterExecutor() as pool:
        held = [pool.submit(gate, number) for number in range(4)]
        until(lambda: sum(gate.clusters.values()) == 4)
        results = map_over_clusters(str, range(3))
        found: list[str] = []
        waiting = threading.Thread(target=lambda: found.extend(results))
        waiting.start()
        gate.open.set()
        wait(held)
        pool.shutdown()
        waiting.join(PATIENCE_S)
    assert found == ["0", "1", "2"]


def test_an_exception_has_its_item_its_cluster_and_its_traceback(clusters: InProcessClusters) -> None:
    results = map_over_clusters(reciprocal, [2, 1, 0, 4])
    assert [next(results), next(results)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError) as raised:
        next(results)
    cause = raised.value.__cause__
    assert isinstance(cause, ItemFailed)
    assert (cause.item, cause.number) == (0, 2)
    assert cause.cluster in TWO
    assert "return 1 / number" in cause.traceback
    assert "item 2 (0) failed on cluster" in "".join(traceback.format_exception(raised.value))
    assert list(results) == []


def test_errors_can_be_results(clusters: InProcessClusters) -> None:
    found = list(map_over_clusters(reciprocal, [1, 0, 2], on_error="return"))
    assert isinstance(found.pop(1), ZeroDivisionError)
    assert found == [1.0, 0.5]


def test_an_error_of_the_input_comes_after_the_results_before_it(
    clusters: InProcessClusters,
) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("no more of the file")

    results = map_over_clusters(str, items())
    assert next(results) == "1"
    with pytest.raises(OSError, match="no more of the file"):
        next(results)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"chunk": 0}, "chunk: a whole number from 1 on is needed, not 0"),
        ({"retries": -1}, "retries: a whole number from 0 on is needed, not -1"),
        ({"retries": True}, "retries: a whole number"),
        ({"cpus": "2"}, "cpus: a number from 0 on is needed, not '2'"),
        ({"cpus": 0}, "cpus and gpus are both 0"),
        ({"on_error": "skip"}, 'on_error: "raise" or "return" is needed'),
        ({"items": 3}, "items: a list, a generator or the like is needed, not 3"),
        ({"func": 3}, "func: a function is needed, not 3"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        map_over_clusters(**{"func": str, "items": [1], **arguments})
    assert words in str(raised.value)


def test_a_call_that_fits_nowhere_is_refused(clusters: InProcessClusters) -> None:
    with pytest.raises(NeverFits):
        list(map_over_clusters(str, [1], cpus=3))


def test_what_is_put_everywhere_is_read_by_the_function_and_sent_by_nothing_else(
    clusters: InProcessClusters,
) -> None:
    table = put_everywhere({1: "one", 2: "two"})
    assert list(map_over_clusters(lambda key: table.value[key], [1, 2])) == ["one", "two"]
    with pytest.raises(TypeError, match="can be sent by map_over_clusters and MultiClusterExecutor only"):
        table.__reduce__()


def test_progress_is_logged_where_there_is_no_terminal(
    clusters: InProcessClusters, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        list(map_over_clusters(reciprocal, [1, 0], on_error="return"))
    assert "map: 2 of 2 items, " in caplog.text
    assert ", 1 failed" in caplog.text


def test_progress_tells_rate_clusters_and_losses() -> None:
    progress = Progress(done=50, failed=1, repeated=2, trouble="lost a worker on cluster 'a' (why)")
    progress.workers.update({"b": 2, "a": 0})
    assert (
        summary(progress, 5.0) == "10/s on b (2), 1 failed, 2 run again: lost a worker on cluster 'a' (why)"
    )


def test_a_million_items_go_through_in_little_memory() -> None:
    program = """
import resource
from ray_multicluster_scheduler import map_over_clusters
from ray_multicluster_scheduler.testing import InProcessClusters

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20

seen = []
with InProcessClusters({"a": {"CPU": 2}, "b": {"CPU": 2}}):
    for number, result in enumerate(map_over_clusters(abs, iter(range(1_000_000)), progress=False)):
        assert result == number
        if number % 50_000 == 49_999:
            seen.append(resident())
assert len(seen) == 20
print(max(seen) - min(seen))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert float(done.stdout) < 50


def test_an_interrupt_ends_everything(tmp_path: Path) -> None:
    program = """
import os, signal, threading, time
from ray_multicluster_scheduler import map_over_clusters
from ray_multicluster_scheduler.testing import InProcessClusters

def call(item):
    if item == 100:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(600)
    return item

with InProcessClusters({"a": {"CPU": 2}}) as clusters:
    try:
        for _ in map_over_clusters(call, range(10**9), progress=False):
            pass
    except KeyboardInterrupt:
        print("interrupted", clusters.used("a"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.stdout == "interrupted {}\n", done.stderr


# The executor.


def test_an_executor_works_as_those_of_the_standard_library(clusters: InProcessClusters) -> None:
    with MultiClusterExecutor() as pool:
        futures = [pool.submit(pow, number, 2) for number in range(20)]
        assert {future.result() for future in as_completed(futures)} == {number**2 for number in range(20)}
        assert list(pool.map(pow, range(4), range(4))) == [1, 1, 4, 27]
        failed = pool.submit(reciprocal, 0)
        assert isinstance(failed.exception(), ZeroDivisionError)
        assert isinstance(failed.exception().__cause__, ItemFailed)  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="cannot schedule new futures after shutdown"):
        pool.submit(str)


def test_what_has_not_begun_can_be_cancelled(clusters: InProcessClusters) -> None:
    gate = Gate()
    with MultiClusterExecutor(max_workers=1, chunk=1) as pool:
        running = pool.submit(gate, 1)
        until(lambda: gate.calls[1])
        waiting = pool.submit(gate, 2)
        assert not running.cancel()
        assert waiting.cancel()
        gate.open.set()
        assert running.result() == 2
    assert waiting.cancelled()
    assert gate.calls == {1: 1}


def test_a_shutdown_can_cancel_what_has_not_begun(clusters: InProcessClusters) -> None:
    gate = Gate()
    pool = MultiClusterExecutor(max_workers=1)
    futures = [pool.submit(gate, number) for number in range(10)]
    until(lambda: gate.calls[0])
    pool.shutdown(wait=False, cancel_futures=True)
    gate.open.set()
    done, _ = wait(futures)
    assert futures[0].result() == 0
    assert all(future.cancelled() for future in done if future is not futures[0])


def test_an_executor_that_is_stopped_leaves_no_future_open(clusters: InProcessClusters) -> None:
    gate = Gate()
    pool = MultiClusterExecutor(max_workers=2)
    futures: list[Future[int]] = [pool.submit(gate, number) for number in range(10)]
    until(lambda: gate.calls[0])
    pool.stop()
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(PATIENCE_S)
    gate.open.set()


def test_an_executor_whose_workers_fit_nowhere_says_so_to_all(clusters: InProcessClusters) -> None:
    pool = MultiClusterExecutor(cpus=3)
    with pytest.raises(NeverFits):
        pool.submit(pow, 2, 2).result(PATIENCE_S)
    with pytest.raises(RuntimeError, match="this executor cannot go on"):
        pool.submit(pow, 2, 2)
    pool.shutdown()


def test_a_call_on_a_lost_cluster_is_repeated_elsewhere(clusters: InProcessClusters) -> None:
    gate = Gate(3)
    with MultiClusterExecutor(preferred_cluster="a") as pool:
        future = pool.submit(gate, 3)
        until(lambda: gate.clusters["a"])
        clusters.kill("a")
        gate.open.set()
        assert future.result(PATIENCE_S) == 6
    assert gate.clusters == {"a": 1, "b": 1}


async def test_a_future_can_be_awaited(clusters: InProcessClusters) -> None:
    with MultiClusterExecutor() as pool:
        assert await asyncio.wrap_future(pool.submit(pow, 2, 5)) == 32
        assert await asyncio.get_running_loop().run_in_executor(pool, pow, 2, 6) == 64


# asyncio.


async def test_a_coroutine_gets_the_same_results(clusters: InProcessClusters) -> None:
    assert [each async for each in aio.map_over_clusters(str, range(300))] == list(map(str, range(300)))
    with pytest.raises(ZeroDivisionError):
        _ = [each async for each in aio.map_over_clusters(reciprocal, [0])]
    async with aclosing(aio.map_over_clusters(str, range(10**9))) as results:
        async for each in results:
            if each == "50":
                break
