"""What was just placed counts until a look at the cluster shows it, or until it is done."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.tasks.home import (
    MAX_ASKED,
    Finished,
    UnobservedClaim,
    UnobservedClaims,
)


def nobody_is_asked(_: list[Any]) -> list[Any]:
    raise AssertionError("asked")


def some_claims(*entries: tuple[float, object], finished: Finished = nobody_is_asked) -> UnobservedClaims:
    """Return one-CPU claims: (when, ref)."""
    unobserved = UnobservedClaims(finished)
    for at, ref in entries:
        unobserved.add("a", UnobservedClaim({"CPU": 1.0}, at, ref))
    return unobserved


def test_claims_add_up_per_cluster() -> None:
    unobserved = some_claims((1.0, None), (2.0, None))
    unobserved.add("b", UnobservedClaim({"GPU": 1.0}, 3.0))
    assert unobserved.total("a") == {"CPU": 2.0}
    assert unobserved.total("b") == {"GPU": 1.0}
    assert unobserved.total("c") == {}


def test_what_is_older_than_the_look_is_in_the_look() -> None:
    unobserved = some_claims((1.0, None), (2.0, None), (3.0, None))
    unobserved.drop_sent("a", before=2.0)
    assert unobserved.total("a") == {"CPU": 2.0}


def test_a_finished_task_no_longer_counts_and_an_actor_does() -> None:
    done, running = object(), object()
    unobserved = some_claims((1.0, done), (1.0, running), (1.0, None), finished=lambda _: [done])
    assert unobserved.drop_finished() == {"a": {"CPU": 1.0}}
    assert unobserved.total("a") == {"CPU": 2.0}


def test_a_finished_task_is_known_by_its_ref_of_which_ray_client_returns_a_copy() -> None:
    unobserved = some_claims(
        (1.0, b"done"), (1.0, b"running"), finished=lambda refs: [bytes(bytearray(refs[0]))]
    )
    unobserved.drop_finished()
    assert unobserved.total("a") == {"CPU": 1.0}


def test_one_question_is_asked_for_all_clusters() -> None:
    asked = []
    unobserved = some_claims((1.0, "first"), finished=lambda refs: asked.append(refs) or refs)
    unobserved.add("b", UnobservedClaim({"GPU": 1.0}, 1.0, "second"))
    assert unobserved.drop_finished() == {"a": {"CPU": 1.0}, "b": {"GPU": 1.0}}
    assert asked == [["first", "second"]]


def test_the_oldest_of_very_many_tasks_are_asked_about() -> None:
    unobserved = some_claims(*((1.0, number) for number in range(MAX_ASKED + 5)), finished=lambda refs: refs)
    unobserved.drop_finished()
    assert unobserved.total("a") == {"CPU": 5.0}


def test_nothing_is_asked_where_there_are_no_tasks() -> None:
    assert some_claims((1.0, None)).drop_finished() == {}
    assert some_claims().drop_finished() == {}


@given(st.lists(st.floats(0, 100)), st.floats(0, 100))
def test_the_sum_is_always_that_of_what_is_held(times: list[float], before: float) -> None:
    unobserved = some_claims(*((at, None) for at in times))
    unobserved.drop_sent("a", before=before)
    assert unobserved.total("a").get("CPU", 0.0) == sum(at >= before for at in times)
