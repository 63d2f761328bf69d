"""What is remembered of actors that have ended is bounded, and holds nothing of theirs."""

import weakref

import pytest

from ray_multicluster_scheduler.tasks import operations
from ray_multicluster_scheduler.tasks import registry as module
from ray_multicluster_scheduler.tasks.placement import Decision
from ray_multicluster_scheduler.tasks.registry import ActorRecord, Records


class Handle:
    pass


class StillClock:
    """Time that a test moves on."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


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
    records = Records()
    records.add_actor(an_actor("one"))
    records.end_actor("one")
    records.end_actor("one")
    assert records.actors == {}
    decision = records.decision("one")
    assert decision is not None
    assert decision.sentence == "why one"


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENDED", 3)
    records = Records()
    for number in range(10):
        records.add_actor(an_actor(str(number)))
        records.end_actor(str(number))
    assert list(records.ended) == ["7", "8", "9"]
    assert records.decision("0") is None


def test_a_new_actor_is_dead_only_when_its_cluster_has_not_shown_it_for_a_while() -> None:
    clock, record = StillClock(), an_actor("one")
    asked = operations.Inquiries(Records(), None, clock)  # type: ignore[arg-type]
    clock.at += 3600  # opening its bridge took long: that says nothing about the actor
    assert asked._state(record, "id", {}) is None
    clock.at += operations.SHOWN_AFTER_S
    assert asked._state(record, "id", {}) == operations.DEAD
    assert asked._state(record, "id", {"id": "ALIVE"}) == "ALIVE"
    assert asked._state(record, "id", {}) == operations.DEAD
    assert asked._state(an_actor("two"), "", {}) == operations.DEAD
