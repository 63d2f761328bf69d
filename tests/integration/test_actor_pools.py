"""A pool of actors on clusters of this process: what its callers see when actors come, go and die."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.waiting import PATIENCE_S, until

from ray_multicluster_scheduler import ActorPool, aio
from ray_multicluster_scheduler.core.actor_pool import Demand
from ray_multicluster_scheduler.errors import (
    InvalidRequest,
    ItemFailed,
    NoClusterAvailable,
    SchedulerError,
    WaitTimeout,
)
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.tasks import pool_driver
from ray_multicluster_scheduler.tasks.pool_driver import Fate, PoolActor, PoolDriver
from ray_multicluster_scheduler.tasks.submitter import ActorAbout

ABOUT = ActorAbout(
    class_name="Model",
    methods={"predict": 1, "load": 1, "where": 1, "wait": 1, "stream": "generator"},
    claim={"CPU": 1.0},
    max_concurrency=1,
)


class ActorLost(Exception):
    """The actor of a call is gone."""


class ClusterLost(Exception):
    """All of its cluster are."""


class HomeIsLost(Exception):
    """Nothing can be called any more."""


class Model:
    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.loaded: list[str] = []
        self.go = threading.Event()

    def predict(self, item: int, factor: int = 2) -> int:
        if item < 0:
            raise ValueError("no negative items")
        return factor * item

    def where(self, _: int) -> tuple[str, tuple[str, ...]]:
        return self.cluster, tuple(self.loaded)

    def load(self, path: str) -> str:
        self.loaded.append(path)
        return self.cluster

    def wait(self, item: int) -> int:
        assert self.go.wait(PATIENCE_S)
        return item


@dataclass
class Clusters:
    """Two small clusters, whose actors work in threads."""

    room: Counter[str] = field(default_factory=lambda: Counter(a=2, b=1))
    models: dict[str, Model] = field(default_factory=dict)
    #: By actor, what is under way on it.
    under_way: dict[str, set[Future[Any]]] = field(default_factory=dict)
    made: list[tuple[str, Any]] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    broken: Callable[[str], BaseException | None] = lambda _: None
    gone: bool = False
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(32))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, number: int, *, avoid: Collection[str]) -> PoolActor:
        with self.lock:
            cluster = next((name for name, free in self.room.items() if free and name not in avoid), None)
            if cluster is None:
                raise NoClusterAvailable("no cluster has room now")
            self.room[cluster] -= 1
            name = f"{cluster}{number}"
            self.models[name], self.under_way[name] = Model(cluster), set()
        return PoolActor(name, cluster, None)

    def call(
        self, actor: PoolActor, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Future[Any]:
        future: Future[Any] = Future()
        with self.lock:
            model = self.models.get(actor.name)
            if model is not None:
                self.under_way[actor.name].add(future)
                self.made.append((method, args[0] if args else None))
        if model is None:
            future.set_exception(ActorLost(actor.name))
        elif method == pool_driver.READY:
            self.finish(actor.name, future, lambda: self.construct(actor.cluster))
        else:
            work = getattr(model, method)
            self.threads.submit(self.finish, actor.name, future, lambda: work(*args, **kwargs))
        return future

    def construct(self, cluster: str) -> None:
        if (problem := self.broken(cluster)) is not None:
            raise problem

    def finish(self, name: str, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            result, error = work(), None
        except Exception as problem:  # noqa: BLE001 - the answer of the call
            result, error = None, problem
        with self.lock:
            mine = future in self.under_way.get(name, ())
            self.under_way.get(name, set()).discard(future)
        if mine and error is None:
            future.set_result(result)
        elif mine:
            future.set_exception(error)

    def end(self, actor: PoolActor) -> None:
        self.kill(actor.name)

    def kill(self, name: str, error: BaseException | None = None) -> int:
        """End an actor; return how many calls were under way on it."""
        with self.lock:
            if (model := self.models.pop(name, None)) is None:
                return 0
            model.go.set()  # its thread ends; nobody hears of it
            calls = self.under_way.pop(name)
            self.room[name[0]] += 1
        for future in calls:
            future.set_exception(error or ActorLost(name))
        return len(calls)

    def lose(self, cluster: str) -> int:
        with self.lock:
            there = [name for name, model in self.models.items() if model.cluster == cluster]
        return sum(self.kill(name, ClusterLost(cluster)) for name in there)

    def check(self) -> None:
        if self.gone:
            raise HomeIsLost("nobody answers")

    def fate(self, error: BaseException) -> Fate:
        kinds = {ActorLost: Fate.ACTOR_LOST, ClusterLost: Fate.CLUSTER_LOST, HomeIsLost: Fate.HOME_LOST}
        return kinds.get(type(error), Fate.ALIVE)

    def surroundings(self) -> tuple[Mapping[str, Resources], Sequence[Demand]]:
        return {name: {"CPU": float(free)} for name, free in self.room.items()}, self.demands

    def let_go(self) -> None:
        for model in list(self.models.values()):
            model.go.set()


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    world = Clusters()
    yield world
    world.let_go()
    world.threads.shutdown()


@pytest.fixture
def pool_of(clusters: Clusters) -> Iterator[Callable[..., ActorPool[Model]]]:
    pools: list[ActorPool[Model]] = []

    def start(size: int | None = None, timeout_s: float | None = None, **options: Any) -> ActorPool[Model]:
        driver = PoolDriver(clusters, ABOUT, size=size, look_every_s=0.01, sense_every_s=0.01, **options)
        driver.begin(timeout_s)
        pools.append(ActorPool(driver, ABOUT))
        return pools[-1]

    yield start
    clusters.let_go()
    for pool in pools:
        pool.stop()


def test_results_come_in_the_order_of_the_items_or_as_they_are_ready(
    clusters: Clusters, pool_of: Any
) -> None:
    pool = pool_of()
    assert list(pool.map("predict", range(100))) == [2 * each for each in range(100)]
    assert list(pool.map(Model.predict, range(10), kwargs={"factor": 3})) == [3 * each for each in range(10)]
    assert sorted(pool.map("predict", range(10), ordered=False)) == [2 * each for each in range(10)]


def test_a_slow_item_holds_back_the_results_after_it_only_where_they_are_ordered(
    clusters: Clusters, pool_of: Any
) -> None:
    pool = pool_of(2)
    until(lambda: pool.size == 2)
    slow = pool.submit("wait", 0)
    results = pool.map("predict", [1, 2, 3], ordered=False)
    assert sorted(next(results) for _ in range(3)) == [2, 4, 6]
    clusters.let_go()
    assert slow.result(PATIENCE_S) == 0


def test_no_more_items_are_taken_than_the_window_holds(pool_of: Any) -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        for number in range(10**9):
            taken.append(number)
            yield number

    results = pool_of(1).map("predict", endless(), window=5)
    for number in range(50):
        assert next(results) == 2 * number
        assert len(taken) <= number + 1 + 5
    results.close()


def test_a_pool_of_the_size_fit_takes_what_is_free_and_grows_when_room_appears(
    clusters: Clusters, pool_of: Any
) -> None:
    pool = pool_of()
    until(lambda: pool.clusters() == {"a": 2, "b": 1})
    assert pool.size == 3
    assert repr(pool) == "<ActorPool Model: 3 actors (a 2, b 1), 0 calls running, 0 waiting>"
    clusters.room["b"] += 2
    until(lambda: pool.clusters() == {"a": 2, "b": 3})


def test_a_pool_has_no_more_actors_than_were_asked_for(clusters: Clusters, pool_of: Any) -> None:
    numbered, bounded = pool_of(1), pool_of(max_size=2)
    until(lambda: bounded.size == 2)
    list(bounded.map("predict", range(100)))
    assert (numbered.size, bounded.size, clusters.room.total()) == (1, 2, 0)


def test_a_pool_gives_room_back_when_others_wait_for_it_and_no_call_is_lost(
    clusters: Clusters, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.core.actor_pool.SHRINK_AFTER_S", 0.0)
    pool = pool_of()
    until(lambda: pool.size == 3)
    calls = [pool.submit("wait", number) for number in range(3)]
    until(lambda: all(call.running() for call in calls))
    clusters.demands = [Demand(claim={"CPU": 2.0}, clusters=frozenset("a"))]
    until(lambda: pool.clusters() == {"b": 1})
    assert clusters.room["a"] == 0  # its calls are not over yet
    clusters.let_go()
    assert [call.result(PATIENCE_S) for call in calls] == [0, 1, 2]
    until(lambda: clusters.room["a"] == 2)
    assert pool.repeated == 0


def test_the_first_actor_is_waited_for_and_the_reason_is_told(clusters: Clusters, pool_of: Any) -> None:
    clusters.room.clear()
    with pytest.raises(WaitTimeout, match="no cluster has room now"):
        pool_of(timeout_s=0.05)
    threading.Timer(0.05, clusters.room.update, [{"b": 1}]).start()
    assert pool_of().submit("predict", 4).result(PATIENCE_S) == 8


def test_the_item_of_a_lost_actor_is_repeated_on_another_one_and_the_actor_replaced(
    clusters: Clusters, pool_of: Any
) -> None:
    pool = pool_of()
    until(lambda: pool.size == 3)
    waiting = pool.map("wait", range(3), ordered=False)
    threads = ThreadPoolExecutor(1)
    results = threads.submit(lambda: sorted(waiting))
    until(lambda: sum(map(len, clusters.under_way.values())) == 3)
    victim = next(name for name in clusters.models if name.startswith("a"))
    assert clusters.kill(victim) == 1
    until(lambda: pool.size == 3 and pool.repeated == 1)
    until(lambda: len([each for each in clusters.made if each[0] == "wait"]) >= 3)

    def over() -> bool:
        clusters.let_go()
        return results.done()

    until(over)
    assert results.result() == [0, 1, 2]
    threads.shutdown()


def test_a_lost_cluster_repeats_what_was_under_way_there_and_nothing_else(
    clusters: Clusters, pool_of: Any
) -> None:
    pool = pool_of()
    until(lambda: pool.size == 3)
    calls = [pool.submit("wait", number) for number in range(3)]
    until(lambda: sum(map(len, clusters.under_way.values())) == 3)
    assert clusters.lose("a") == 2

    def over() -> bool:
        clusters.let_go()
        return all(call.done() for call in calls)

    until(over)
    assert [call.result() for call in calls] == [0, 1, 2]
    assert pool.repeated == 2
    assert Counter(each for each in clusters.made if each[0] == "wait").total() == 5


def test_an_item_that_loses_actor_after_actor_is_given_up(clusters: Clusters, pool_of: Any) -> None:
    clusters.room.update({"a": -2})  # one actor in all
    pool = pool_of()
    for retries in (0, 1, 2):
        threads = ThreadPoolExecutor(1)
        result = threads.submit(lambda count=retries: list(pool.map("wait", ["x"], retries=count)))
        for _ in range(retries + 1):
            until(lambda: sum(map(len, clusters.under_way.values())) == 1)
            assert sum(clusters.kill(name) for name in list(clusters.models)) == 1
        with pytest.raises(ActorLost) as raised:
            result.result(PATIENCE_S)
        cause = raised.value.__cause__
        assert isinstance(cause, ItemFailed)
        assert (cause.item, cause.cluster) == ("x", "b")
        threads.shutdown()


def test_an_error_of_the_method_has_its_item_and_cluster_and_is_not_repeated(
    clusters: Clusters, pool_of: Any
) -> None:
    pool = pool_of(1)
    with pytest.raises(ValueError, match="no negative items") as raised:
        list(pool.map("predict", [1, -5, 2]))
    cause = raised.value.__cause__
    assert isinstance(cause, ItemFailed)
    assert (cause.item, cause.number, cause.cluster) == (-5, 1, "a")
    assert "no negative items" in cause.traceback
    assert clusters.made.count(("predict", -5)) == 1
    assert isinstance(pool.submit("predict", -6).exception(PATIENCE_S), ValueError)


def test_errors_are_returned_where_they_are_wanted_and_repeated_where_that_is_said(
    clusters: Clusters, pool_of: Any
) -> None:
    pool = pool_of(1)
    one, problem, two = pool.map("predict", [1, -5, 2], on_error="return", retry_exceptions=[ValueError])
    assert (one, two) == (2, 4)
    assert isinstance(problem, ValueError)
    assert clusters.made.count(("predict", -5)) == 2


def test_a_broadcast_reaches_every_actor_and_those_that_join_later(clusters: Clusters, pool_of: Any) -> None:
    pool = pool_of()
    until(lambda: pool.size == 3)
    until(lambda: sorted(pool.broadcast("load", "weights")) == ["a", "a", "b"])
    before = sum(each == ("load", "weights") for each in clusters.made)
    clusters.room["b"] += 1
    until(lambda: pool.size == 4)
    until(lambda: sum(each == ("load", "weights") for each in clusters.made) > before)
    assert pool.broadcast(Model.load, "more") in (["a", "a", "b", "b"], ["a", "a", "b"])
    places = list(pool.map("where", range(40)))
    assert {loaded[-1] for _, loaded in places} == {"more"}
    assert {loaded[0] for _, loaded in places} == {"weights"}


def test_a_broadcast_that_failed_is_not_repeated_by_actors_that_join_later(
    clusters: Clusters, pool_of: Any
) -> None:
    clusters.room["b"] = 0
    pool = pool_of(max_size=3)
    with pytest.raises(ValueError, match="no negative items"):
        pool.broadcast("predict", -1)
    pool.broadcast("load", "weights")
    clusters.room["b"] = 1
    until(lambda: pool.clusters()["b"] == 1)
    until(lambda: "b" in pool.broadcast("load", "more"))
    on_b = next(model for model in clusters.models.values() if model.cluster == "b")
    assert on_b.loaded[:1] == ["weights"]
    assert len(set(on_b.loaded)) == 2


def test_a_broadcast_reaches_an_actor_once_however_early_it_comes(clusters: Clusters, pool_of: Any) -> None:
    pool = pool_of()
    pool.broadcast("load", "weights")
    until(lambda: pool.size == 3)
    list(pool.map("predict", range(30)))
    until(lambda: sum(each == ("load", "weights") for each in clusters.made) == 3)
    assert [model.loaded for model in clusters.models.values()] == [["weights"]] * 3


def test_a_pool_remembers_a_bounded_number_of_broadcasts(
    pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_driver, "MAX_BROADCASTS", 2)
    pool = pool_of(1)
    pool.broadcast("load", "1")
    pool.broadcast("load", "2")
    with pytest.raises(InvalidRequest, match="remembers 2 broadcasts"):
        pool.broadcast("load", "3")


def test_a_constructor_that_always_fails_ends_the_pool_with_its_error(
    clusters: Clusters, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_driver, "MAX_PAUSE_S", 0.02)
    clusters.broken = lambda _: ActorLost("no weights at /nowhere")
    pool = pool_of()
    with pytest.raises(ActorLost, match="no weights"):
        list(pool.map("predict", range(3)))
    with pytest.raises(SchedulerError, match="no weights"):
        pool.submit("predict", 1)
    until(lambda: clusters.models == {})  # one may have been on its way


def test_a_cluster_whose_actors_do_not_start_is_left_alone_for_a_while(
    clusters: Clusters, pool_of: Any
) -> None:
    clusters.broken = lambda cluster: ActorLost("no such image") if cluster == "a" else None
    pool = pool_of()
    assert list(pool.map("predict", range(20))) == [2 * each for each in range(20)]
    assert pool.clusters()["b"] == 1


def test_calls_that_wait_are_cancelled_when_the_pool_stops_and_those_under_way_fail(
    clusters: Clusters, pool_of: Any
) -> None:
    with pool_of(1) as pool:
        under_way, waiting = pool.submit("wait", 0), pool.submit("predict", 1)
        until(under_way.running)
    assert isinstance(under_way.exception(PATIENCE_S), SchedulerError)
    with pytest.raises(CancelledError):
        waiting.result(PATIENCE_S)
    assert clusters.models == {}
    assert repr(pool) == "<ActorPool Model: stopped>"
    with pytest.raises(SchedulerError, match="was stopped"):
        pool.map("predict", [1])


def test_a_call_that_waits_can_be_cancelled(clusters: Clusters, pool_of: Any) -> None:
    pool = pool_of(1)
    under_way, waiting, last = pool.submit("wait", 0), pool.submit("predict", 1), pool.submit("predict", 2)
    until(under_way.running)
    assert waiting.cancel()
    assert not under_way.cancel()
    clusters.let_go()
    assert last.result(PATIENCE_S) == 4
    assert ("predict", 1) not in clusters.made


def test_leaving_a_map_early_cancels_what_waits_for_it(clusters: Clusters, pool_of: Any) -> None:
    pool = pool_of(1)
    results = pool.map("predict", range(1000), window=100)
    assert next(results) == 0
    results.close()
    pool.submit("predict", 5).result(PATIENCE_S)
    assert len(clusters.made) < 120


def test_ctrl_c_while_a_map_is_waited_for_ends_all_actors(
    clusters: Clusters, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    pool = pool_of(1)
    results = pool.map("wait", [1])
    monkeypatch.setattr("ray_multicluster_scheduler.tasks.actor_pool.Results.next", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(results)
    until(lambda: clusters.models == {})
    clusters.let_go()


def test_a_lost_home_ends_the_pool(clusters: Clusters, pool_of: Any) -> None:
    pool = pool_of(1)
    calls = [pool.submit("wait", 0), pool.submit("wait", 1)]
    until(calls[0].running)
    clusters.kill(next(iter(clusters.models)), HomeIsLost("home"))
    assert [type(call.exception(PATIENCE_S)) for call in calls] == [HomeIsLost, HomeIsLost]


def test_a_pool_ends_also_where_a_call_never_will(clusters: Clusters, pool_of: Any) -> None:
    call = pool_of(1).submit("wait", 0)
    clusters.gone = True
    assert isinstance(call.exception(PATIENCE_S), HomeIsLost)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"method": "predct"}, "Model has no method 'predct'; it has: load, predict"),
        ({"method": "stream"}, "'stream' yields its results"),
        ({"method": "predict", "on_error": "ignore"}, "on_error must be 'raise' or 'return'"),
        ({"method": "predict", "window": 0}, "window must be 1 or more"),
        ({"method": "predict", "retries": -1}, "retries must be 0 or more"),
        ({"method": "predict", "retry_exceptions": ["ValueError"]}, "retry_exceptions must be"),
    ],
)
def test_what_cannot_be_mapped_is_refused_before_anything_is_sent(
    pool_of: Any, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        pool_of(1).map(items=[1], **arguments)


async def test_a_pool_is_used_with_asyncio_by_the_same_names(clusters: Clusters, pool_of: Any) -> None:
    async with aio.ActorPool(pool_of(1)) as pool:
        assert [result async for result in pool.map("predict", range(5))] == [0, 2, 4, 6, 8]
        assert await pool.submit("predict", 4) == 8
        assert await pool.broadcast("load", "weights") == ["a"]
        assert (pool.size, pool.clusters(), pool.repeated) == (1, {"a": 1}, 0)
        with pytest.raises(ValueError, match="no negative items"):
            await pool.submit("predict", -1)
    assert clusters.models == {}
