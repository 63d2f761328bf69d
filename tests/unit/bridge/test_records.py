"""What is remembered of actors that have ended is bounded, and holds nothing of theirs."""

import weakref

import pytest

from ray_multicluster_scheduler.bridge import records as module
from ray_multicluster_scheduler.bridge.place import Decision
from ray_multicluster_scheduler.bridge.records import ActorRecord, Records


class Handle:
    pass


def an_actor(actor_id: str) -> ActorRecord:
    return ActorRecord(
        actor_id=actor_id,
        name="",
        class_name="Far",
        decision=Decision(cluster="a", sentence=f"why {actor_id}"),
        at=0.0,
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
