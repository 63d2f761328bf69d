"""What is remembered of actors that have ended is bounded, and holds nothing of theirs."""

import weakref

import pytest
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.tasks import operations
from ray_multicluster_scheduler.tasks.operations import ActorRecord, Registry
from ray_multicluster_scheduler.tasks.placement import Decision


class Handle:
    pass


def an_actor(actor_id: str) -> ActorRecord:
    return ActorRecord(
        actor_id=actor_id,
        name="",
        class_name="Far",
        decision=Decision(cluster="a", sentence=f"why {actor_id}"),
        handle=weakref.ref(Handle()),
        created=object(),
    )


def test_an_actor_that_has_ended_is_let_go_and_can_still_be_explained() -> None:
    registry = Registry()
    registry.add_actor(an_actor("one"))
    registry.end_actor("one")
    registry.end_actor("one")
    assert registry.actors == {}
    decision = registry.decision("one")
    assert decision is not None
    assert decision.sentence == "why one"


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_ENDED", 3)
    registry = Registry()
    for number in range(10):
        registry.add_actor(an_actor(str(number)))
        registry.end_actor(str(number))
    assert list(registry.ended) == ["7", "8", "9"]
    assert registry.decision("0") is None


def test_a_new_actor_is_dead_only_when_its_cluster_has_not_shown_it_for_a_while() -> None:
    clock, record = ManualClock(), an_actor("one")
    asked = operations.TaskOperations(Registry(), None, clock)  # type: ignore[arg-type]
    clock.advance(3600)  # opening its bridge took long: that says nothing about the actor
    assert asked._state_of(record, "id", {}) is None
    clock.advance(operations.SHOWN_AFTER_S)
    assert asked._state_of(record, "id", {}) == operations.DEAD
    assert asked._state_of(record, "id", {"id": "ALIVE"}) == "ALIVE"
    assert asked._state_of(record, "id", {}) == operations.DEAD
    assert asked._state_of(an_actor("two"), "", {}) == operations.DEAD
