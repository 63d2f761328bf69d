"""Work that waits for room gets one sentence: what waits, for what, who holds it, and where to ask."""

import logging
import weakref
from typing import Any

import pytest
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.errors import ClusterUnreachable
from ray_multicluster_scheduler.ray_api.http_connection import Holder
from ray_multicluster_scheduler.tasks.operations import ActorRecord, TaskRecord
from ray_multicluster_scheduler.tasks.placement import Decision
from ray_multicluster_scheduler.tasks.submitter import EVERY_S, QUIET_S, WaitWarnings


class Cluster:
    """What the operations find out: which work still waits, and who holds the room."""

    def __init__(self) -> None:
        self.waiting: set[str] = set()
        self.held_by: tuple[Holder, ...] = ()
        self.answers = True

    def is_waiting(self, record: TaskRecord | ActorRecord, _ref: Any) -> bool:
        if not self.answers:
            raise ClusterUnreachable("a", "nobody there")
        return (record.actor_id if isinstance(record, ActorRecord) else record.task_id) in self.waiting

    def holders(self, _cluster: str) -> tuple[Holder, ...]:
        return self.held_by


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = Cluster()
        self.waiting = WaitWarnings(self.cluster, self.clock)  # type: ignore[arg-type]

    def add(self, *task_ids: str, waits: bool = True) -> None:
        for task_id in task_ids:
            decision = Decision(cluster="a", sentence="no cluster has room now", waits=waits)
            self.waiting.add(TaskRecord(task_id=task_id, name="slow", decision=decision), {"CPU": 2.0})
            self.cluster.waiting.add(task_id)

    def look_after(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.waiting.check()


@pytest.fixture
def world() -> World:
    return World()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_after_a_few_seconds_it_is_said_who_holds_the_room(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add("task_1")
    world.cluster.held_by = (
        Holder(name="actor Trainer", resources={"CPU": 1.0}),
        Holder(name="actor Trainer", resources={"CPU": 1.0}),
        Holder(name="task load", resources={"CPU": 1.0}),
        Holder(name="actor raymc hub", resources={}),
    )
    world.look_after(QUIET_S - 1)
    assert said(caplog) == []
    world.look_after(1)
    assert said(caplog) == [
        "the task slow (task_1) waits for room on cluster 'a', for 5 s so far: it needs 2 CPU; held there by "
        "actor Trainer (2x), task load. explain_task('task_1') says why it is there"
    ]


def test_an_actor_is_called_by_its_name(world: World, caplog: pytest.LogCaptureFixture) -> None:
    decision = Decision(cluster="a", sentence="", waits=True)
    record = ActorRecord(
        actor_id="actor_1",
        name="",
        class_name="Trainer",
        decision=decision,
        handle=weakref.ref(world),
    )
    world.waiting.add(record, {"GPU": 1.0})
    world.cluster.waiting.add("actor_1")
    world.look_after(QUIET_S)
    (sentence,) = said(caplog)
    assert sentence.startswith("the actor Trainer (actor_1) waits for room on cluster 'a'")
    assert "nothing that runs there shows as holding it" in sentence


def test_many_get_one_sentence_and_the_next_one_comes_a_minute_later(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add(*(f"task_{number}" for number in range(1, 6)))
    world.look_after(QUIET_S)
    world.add("task_6")
    world.look_after(QUIET_S)
    assert len(said(caplog)) == 1
    assert "(task_1) and 4 more wait for room" in said(caplog)[0]
    world.look_after(EVERY_S)
    world.add("task_7")
    world.look_after(QUIET_S)
    assert len(said(caplog)) == 2


def test_what_has_begun_or_had_room_gets_no_word(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.add("task_1")
    world.add("task_2", waits=False)
    world.cluster.waiting.remove("task_1")
    world.look_after(QUIET_S)
    assert said(caplog) == []


def test_a_cluster_that_does_not_answer_is_no_problem_of_its_own(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.add("task_1")
    world.cluster.answers = False
    world.look_after(QUIET_S)
    assert said(caplog) == []
