"""The plan of a map: every item ends once, whatever is lost, and nothing is read too far ahead."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.tasks.map_plan import (
    CHUNK_S,
    DEPTH,
    FIRST_ITEMS,
    LONG_S,
    MAX_CHUNK,
    MAX_CHUNK_BYTES,
    ROOM_EVERY_S,
    Chunk,
    MapPlan,
    Run,
    Start,
)


@dataclass
class Scene:
    """A plan, and what a driver would know: who has which chunks, and what has ended."""

    plan: MapPlan
    slots: int = 3
    now: float = 0.0
    workers: dict[int, list[Chunk]] = field(default_factory=dict)
    ran: Counter[int] = field(default_factory=Counter)
    ended: Counter[int] = field(default_factory=Counter)
    given_up: Counter[int] = field(default_factory=Counter)
    came: int = 0

    def read(self, count: int) -> None:
        count = min(count, self.plan.may_read)
        self.came += count
        self.plan.items_came(count)

    def step(self) -> list[Start | Run]:
        steps = list(self.plan.instructions(self.now))
        for step in steps:
            if isinstance(step, Run):
                self.workers[step.worker].append(step.chunk)
                assert len(self.workers[step.worker]) <= DEPTH
                self.ran.update(step.chunk.items)
            elif len(self.workers) < self.slots:
                self.plan.worker_started(step.worker)
                self.plan.worker_ready(step.worker)
                self.workers[step.worker] = []
            else:
                self.plan.no_room(self.now)
        return steps

    def end(self, worker: int, seconds: float = 0.01) -> None:
        chunk = self.workers[worker].pop(0)
        assert self.plan.chunk_ended(worker, chunk, seconds)
        self.ended.update(chunk.items)
        self.plan.items_taken(chunk.size)

    def lose(self, worker: int, *, begun: bool = True) -> list[int]:
        self.workers.pop(worker)
        again, given_up = self.plan.worker_lost(worker, begun=begun)
        self.given_up.update(given_up)
        self.plan.items_taken(len(given_up))
        return again

    def settle(self) -> None:
        """Let everything end that is under way or still comes."""
        while not self.plan.done:
            self.step()
            busy = [worker for worker, chunks in self.workers.items() if chunks]
            if not busy:
                self.now += ROOM_EVERY_S
            for worker in busy:
                self.end(worker)


def started(workers: int = 2, *, items: int = 16, **options: int | None) -> Scene:
    scene = Scene(MapPlan(**options), slots=workers)
    scene.read(items)
    for _ in range(workers + 1):
        scene.step()
    return scene


@given(st.data())
def test_every_item_ends_exactly_once_whatever_is_lost(data: st.DataObject) -> None:
    retries = data.draw(st.integers(0, 2), "retries")
    chunk = data.draw(st.none() | st.integers(1, 5), "chunk")
    scene = Scene(MapPlan(chunk=chunk, retries=retries), slots=data.draw(st.integers(1, 4), "slots"))
    losses = 0
    for _ in range(data.draw(st.integers(0, 40), "events")):
        busy = [worker for worker, chunks in scene.workers.items() if chunks]
        choices = ["read", "step", "time"] + ["end"] * bool(busy) + ["lose"] * bool(scene.workers)
        what = data.draw(st.sampled_from(choices))
        if what == "read":
            scene.read(data.draw(st.integers(1, 10)))
        elif what == "step":
            scene.step()
        elif what == "time":
            scene.now += 1
        elif what == "end":
            scene.end(data.draw(st.sampled_from(busy)), data.draw(st.sampled_from([0.0, 0.1, 10.0])))
        else:
            losses += 1
            scene.lose(data.draw(st.sampled_from(sorted(scene.workers))), begun=data.draw(st.booleans()))
    scene.plan.input_ended()
    scene.settle()
    assert scene.ended + scene.given_up == Counter(range(scene.came))
    assert max(scene.ran.values(), default=0) <= 1 + losses
    assert retries <= losses or not scene.given_up
    assert not any(scene.ran[item] > 1 for item in scene.ended) or losses


@given(st.integers(0, 200), st.integers(1, 7))
def test_without_losses_no_item_is_run_twice(items: int, workers: int) -> None:
    scene = Scene(MapPlan(), slots=workers)
    left = items
    while left:
        before = scene.came
        scene.read(left)
        left -= scene.came - before
        scene.step()
        for worker in [worker for worker, chunks in scene.workers.items() if chunks]:
            scene.end(worker)
    scene.plan.input_ended()
    scene.settle()
    assert scene.ran == Counter(range(items))


def test_only_what_was_in_flight_is_run_again() -> None:
    scene = started(2)
    first, second = scene.workers
    in_flight = [item for chunk in scene.workers[first] for item in chunk.items]
    done_before = [item for chunk in scene.workers[second] for item in chunk.items]
    scene.end(second)
    assert scene.lose(first) == in_flight
    scene.plan.input_ended()
    scene.settle()
    assert [item for item, times in scene.ran.items() if times > 1] == in_flight
    assert not set(done_before) & set(in_flight)


def test_an_item_that_ends_its_workers_takes_no_neighbour_along() -> None:
    scene = started(1, chunk=4)
    (worker,) = scene.workers
    assert scene.lose(worker) == [0, 1, 2, 3]
    while not scene.plan.done:
        scene.step()
        for worker, chunks in list(scene.workers.items()):
            if chunks and 2 in chunks[0].items:  # the item that kills
                scene.lose(worker)
            elif chunks:
                scene.end(worker)
        scene.plan.input_ended()
        scene.now += ROOM_EVERY_S
    assert dict(scene.given_up) == {2: 1}


def test_what_had_not_begun_does_not_count_as_a_try() -> None:
    scene = started(1, retries=0)
    (worker,) = scene.workers
    assert scene.lose(worker, begun=False) == [0]
    assert not scene.given_up


def test_with_no_retries_all_that_was_sent_is_given_up() -> None:
    scene = started(1, retries=0, chunk=2)
    (worker,) = scene.workers
    scene.end(worker)
    scene.step()
    sent = [item for chunk in scene.workers[worker] for item in chunk.items]
    assert len(sent) == 2 * DEPTH
    assert scene.lose(worker) == []
    assert sorted(scene.given_up) == sent


@pytest.mark.parametrize(("item_s", "size"), [(0.001, CHUNK_S / 0.001), (0.1, 2), (5.0, 1), (0.0, MAX_CHUNK)])
def test_chunks_grow_until_they_take_a_moment(item_s: float, size: float) -> None:
    scene = started(1)
    (worker,) = scene.workers
    for _ in range(40):
        scene.read(10**6)
        scene.step()
        scene.end(worker, item_s * scene.workers[worker][0].size)
    scene.read(10**6)
    scene.step()
    assert scene.workers[worker][-1].size == size


def test_chunks_of_large_items_stay_small() -> None:
    scene = started(1)
    (worker,) = scene.workers
    for _ in range(20):
        scene.plan.chunk_sized(scene.workers[worker][0], MAX_CHUNK_BYTES // 4 * scene.workers[worker][0].size)
        scene.end(worker, 0.0)
        scene.read(10**6)
        scene.step()
    assert scene.workers[worker][-1].size == 4


def test_nobody_gets_more_than_a_share_of_the_last_items() -> None:
    scene = started(4, items=4)
    for worker in scene.workers:
        scene.end(worker, 0.001)
    scene.read(32)
    scene.plan.input_ended()
    scene.step()
    shares = [sum(chunk.size for chunk in chunks) for chunks in scene.workers.values()]
    assert max(shares) <= 32 / 4
    assert min(shares) > 32 / 8


def test_a_worker_gets_no_second_chunk_where_chunks_take_long() -> None:
    scene = started(2)
    for worker in scene.workers:
        scene.end(worker, 10 * LONG_S)
    scene.step()
    assert {len(chunks) for chunks in scene.workers.values()} == {1}


def test_a_slow_item_holds_the_input_back() -> None:
    scene = started(2)
    for _ in range(1000):
        scene.read(10**6)
        scene.step()
        for worker in [worker for worker, chunks in scene.workers.items() if chunks and chunks[0].first]:
            chunk = scene.workers[worker].pop(0)  # ended, but behind item 0 nobody takes the results
            scene.plan.chunk_ended(worker, chunk, 0.1 * chunk.size)
    assert scene.plan.may_read == 0
    assert scene.came <= 64


def test_little_is_read_before_anything_is_known() -> None:
    scene = Scene(MapPlan())
    scene.read(10**9)
    assert scene.came == FIRST_ITEMS


def test_no_more_workers_are_started_than_there_are_items() -> None:
    scene = Scene(MapPlan(), slots=10)
    scene.read(3)
    for _ in range(10):
        scene.step()
    assert len(scene.workers) == 3


def test_where_there_is_no_room_it_is_tried_again_after_a_while_and_the_first_worker_waits() -> None:
    plan = MapPlan()
    plan.items_came(10)
    assert list(plan.instructions(0.0)) == [Start(1, wait=True)]
    plan.worker_started(1)
    plan.worker_ready(1)
    assert list(plan.instructions(0.0)) == [Run(1, Chunk(0, 1)), Start(2, wait=False)]
    plan.no_room(0.0)
    assert list(plan.instructions(1.0)) == []
    assert plan.wake_at() == ROOM_EVERY_S
    assert list(plan.instructions(ROOM_EVERY_S)) == [Start(3, wait=False)]
