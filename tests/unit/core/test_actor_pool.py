"""Which call goes to which actor of a pool, and when the pool grows and shrinks."""

import os
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ray_multicluster_scheduler.core.actor_pool import (
    GROW_AFTER_S,
    SETTLE_S,
    SHRINK_AFTER_S,
    Demand,
    GiveUp,
    PoolCalls,
    PoolRoom,
    Release,
    Send,
    SizeMemory,
    Step,
    next_size,
)

CPU = {"CPU": 1.0}


class Pools(RuleBasedStateMachine):
    """Anything may happen to a pool in any order: this is what stays true."""

    @initialize(per_actor=st.integers(1, 3))
    def begin(self, per_actor: int) -> None:
        self.per_actor = per_actor
        self.calls = PoolCalls(per_actor=per_actor)
        self.actors: dict[str, str] = {}
        self.leaving: set[str] = set()
        self.where: dict[int, str] = {}
        self.waiting: set[int] = set()
        self.losses: dict[int, int] = {}
        self.retries: dict[int, int] = {}
        self.lost_on: dict[int, str] = {}
        self.bound: set[int] = set()
        self.given_up: set[int] = set()
        self.sent: dict[int, int] = {}
        self.numbers = iter(range(10**6))

    def told(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case Send(call, actor):
                    assert actor in self.actors
                    assert actor not in self.leaving or call in self.bound
                    assert call not in self.where
                    self.where[call] = actor
                    self.waiting.discard(call)
                    self.sent[call] = self.sent.get(call, 0) + 1
                case GiveUp(call):
                    assert call not in self.given_up
                    assert self.losses[call] == self.retries[call] + 1
                    self.given_up.add(call)
                    self.waiting.discard(call)
                case Release(actor):
                    assert actor in self.leaving
                    assert actor not in self.where.values()
                    self.leaving.discard(actor)
                    del self.actors[actor]

    @rule(retries=st.integers(0, 2))
    def add(self, retries: int) -> None:
        call = next(self.numbers)
        self.retries[call], self.losses[call] = retries, 0
        self.waiting.add(call)
        self.told(self.calls.add(call, retries=retries))

    @rule(cluster=st.sampled_from("ab"))
    def join(self, cluster: str) -> None:
        name = f"actor{next(self.numbers)}"
        self.actors[name] = cluster
        self.told(self.calls.join(name, cluster))

    @precondition(lambda self: self.actors)
    @rule(data=st.data())
    def broadcast(self, data: Any) -> None:
        call, actor = next(self.numbers), data.draw(st.sampled_from(sorted(self.actors)))
        self.retries[call], self.losses[call] = 0, 0
        self.bound.add(call)
        self.told(self.calls.add_for(call, actor))
        assert self.where[call] == actor

    @precondition(lambda self: self.where)
    @rule(data=st.data(), fails=st.booleans())
    def end(self, data: Any, fails: bool) -> None:
        call = data.draw(st.sampled_from(sorted(self.where)))
        del self.where[call]
        if fails:
            self.losses[call] += 1
            if self.losses[call] <= self.retries[call]:
                self.waiting.add(call)
            self.told(self.calls.fail(call))
        else:
            self.told(self.calls.end(call))

    @precondition(lambda self: self.actors)
    @rule(data=st.data())
    def lose(self, data: Any) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.actors)), min_size=1, unique=True))
        before, expected = self.calls.repeated, 0
        for call in [call for call, actor in self.where.items() if actor in names]:
            self.lost_on[call] = self.actors[self.where.pop(call)]
            self.losses[call] += 1
            if self.losses[call] <= self.retries[call]:
                self.waiting.add(call)
                expected += 1
        for name in names:
            del self.actors[name]
            self.leaving.discard(name)
        self.told(self.calls.lose(names))
        assert self.calls.repeated == before + expected

    @precondition(lambda self: self.actors)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        actor = data.draw(st.sampled_from(sorted(self.actors)))
        self.leaving.add(actor)
        self.told(self.calls.leave(actor))

    @invariant()
    def no_actor_has_more_calls_than_it_may(self) -> None:
        for actor in self.actors:
            there = [call for call, on in self.where.items() if on == actor and call not in self.bound]
            assert len(there) <= self.per_actor

    @invariant()
    def a_call_waits_only_while_no_actor_is_free_for_it(self) -> None:
        staying = {name: at for name, at in self.actors.items() if name not in self.leaving}
        loads = [list(self.where.values()).count(name) for name in staying]
        free = {at for (name, at), load in zip(staying.items(), loads, strict=True) if load < self.per_actor}
        for call in self.waiting:
            avoided = self.lost_on.get(call)
            elsewhere = {at for at in staying.values() if at != avoided}
            assert not (free - {avoided} if elsewhere else free)

    @invariant()
    def what_is_counted_is_what_is_there(self) -> None:
        assert (self.calls.waiting, self.calls.running) == (len(self.waiting), len(self.where))


class TestPools(Pools.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=int(os.environ.get("RAYMC_TEST_EXAMPLES", "60")), deadline=None)


def test_calls_go_to_the_actor_that_has_been_free_for_longest() -> None:
    calls = PoolCalls()
    calls.join("first", "a")
    calls.join("second", "a")
    assert calls.add(1, retries=0) == [Send(1, "first")]
    assert calls.end(1) == []
    assert calls.add(2, retries=0) == [Send(2, "second")]


def test_a_repeated_call_goes_before_those_that_wait_and_not_to_the_cluster_that_lost_it() -> None:
    calls = PoolCalls()
    for name, cluster in [("a1", "a"), ("a2", "a"), ("b1", "b")]:
        calls.join(name, cluster)
    for number in range(4):
        calls.add(number, retries=1)  # the last one waits
    assert calls.lose(["a1"]) == []  # 0 was on it
    assert calls.end(1) == [Send(3, "a2")]
    assert calls.end(2) == [Send(0, "b1")]


def test_a_repeated_call_goes_back_to_its_cluster_where_there_is_no_other() -> None:
    calls = PoolCalls()
    calls.join("a1", "a")
    calls.join("a2", "a")
    calls.add(0, retries=1)
    assert calls.lose(["a1"]) == [Send(0, "a2")]


def rooms(**free: tuple[float, int]) -> dict[str, PoolRoom]:
    return {name: PoolRoom(free={"CPU": cpus}, actors=actors) for name, (cpus, actors) in free.items()}


def wants(cpus: float, cluster: str | None = None) -> Demand:
    return Demand(claim={"CPU": cpus}, clusters=None if cluster is None else frozenset({cluster}))


LONG = SizeMemory(others_since=0.0)


@pytest.mark.parametrize(
    ("demands", "free", "released"),
    [
        pytest.param([wants(1)], rooms(a=(0, 4)), {"a": 1}, id="as many as the job needs"),
        pytest.param([wants(3)], rooms(a=(1, 4)), {"a": 2}, id="what is free counts"),
        pytest.param([wants(2)], rooms(a=(0, 4), b=(1, 4)), {"b": 1}, id="where the fewest have to go"),
        pytest.param([wants(2, "a")], rooms(a=(0, 4), b=(1, 4)), {"a": 2}, id="where the job may run"),
        pytest.param([wants(4)], rooms(a=(0, 4)), {}, id="one actor stays"),
        pytest.param([wants(4)], rooms(a=(0, 4), b=(0, 1)), {"a": 4}, id="one actor stays anywhere"),
        pytest.param([wants(8)], rooms(a=(0, 4)), {}, id="nothing where it would not help"),
        pytest.param([wants(8), wants(1)], rooms(a=(0, 4)), {"a": 1}, id="the first that can be helped"),
        pytest.param([wants(1)], rooms(a=(0, 4), b=(2, 0)), {}, id="nothing for a job that has room"),
        pytest.param([Demand(claim={"GPU": 1})], rooms(a=(0, 4)), {}, id="nothing for what we do not hold"),
        pytest.param([Demand(claim={"GPU": 1, "CPU": 1})], rooms(a=(0, 4)), {}, id="nor where both lack"),
        pytest.param([], rooms(a=(0, 4)), {}, id="nobody waits"),
    ],
)
def test_a_pool_gives_up_the_fewest_actors_that_let_others_start(
    demands: list[Demand], free: dict[str, PoolRoom], released: dict[str, int]
) -> None:
    step = next_size(LONG, now=SHRINK_AFTER_S, claim=CPU, rooms=free, demands=demands)
    assert step.release == released


@pytest.mark.parametrize(
    ("memory", "now", "others", "may_grow", "releases"),
    [
        pytest.param(SizeMemory(), 0.0, False, True, False, id="a new pool grows at once"),
        pytest.param(SizeMemory(), 0.0, True, False, False, id="not while somebody waits"),
        pytest.param(LONG, SHRINK_AFTER_S - 1, True, False, False, id="nor releases at the first sign"),
        pytest.param(LONG, SHRINK_AFTER_S, True, False, True, id="but when it lasts"),
        pytest.param(SizeMemory(grows_from=9), 8.0, False, False, False, id="grows not before it may"),
        pytest.param(SizeMemory(grows_from=9), 9.0, False, True, False, id="but then"),
        pytest.param(
            SizeMemory(others_since=0, shrinks_from=99), 98.0, True, False, False, id="lets a release settle"
        ),
    ],
)
def test_a_pool_changes_its_size_slowly(
    memory: SizeMemory, now: float, others: bool, may_grow: bool, releases: bool
) -> None:
    demands = [wants(1)] if others else []
    step = next_size(memory, now=now, claim=CPU, rooms=rooms(a=(0, 4)), demands=demands)
    assert (step.may_grow, bool(step.release)) == (may_grow, releases)


def test_a_pool_remembers_since_when_others_wait_and_forgets_it_when_nobody_does() -> None:
    room = rooms(a=(0, 4))
    step = next_size(SizeMemory(), now=5.0, claim=CPU, rooms=room, demands=[wants(1)])
    assert step.memory.others_since == 5.0
    assert step.memory.grows_from == 5.0 + GROW_AFTER_S
    step = next_size(step.memory, now=6.0, claim=CPU, rooms=room, demands=[])
    assert step.memory.others_since is None
    step = next_size(step.memory, now=6.0 + SHRINK_AFTER_S, claim=CPU, rooms=room, demands=[wants(1)])
    assert step.release == {}


def test_after_a_release_nothing_changes_until_the_job_could_start() -> None:
    room = rooms(a=(0, 4))
    step = next_size(LONG, now=SHRINK_AFTER_S, claim=CPU, rooms=room, demands=[wants(1)])
    later = SHRINK_AFTER_S + SETTLE_S - 1
    again = next_size(step.memory, now=later, claim=CPU, rooms=room, demands=[wants(1)])
    assert again.release == {}
    assert not next_size(step.memory, now=later, claim=CPU, rooms=room, demands=[]).may_grow
    assert next_size(step.memory, now=later + 1, claim=CPU, rooms=room, demands=[]).may_grow
