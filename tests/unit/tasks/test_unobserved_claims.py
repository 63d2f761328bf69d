"""What was just placed counts until a look at the cluster shows it, or until it is done."""

from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.tasks.unobserved_claims import UnobservedClaim, UnobservedClaims


def some_claims(*entries: tuple[float, object]) -> UnobservedClaims:
    """Return one-CPU claims: (when, ref)."""
    unobserved = UnobservedClaims()
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
    unobserved = some_claims((1.0, done), (1.0, running), (1.0, None))
    unobserved.drop_finished("a", lambda refs: [ref for ref in refs if ref is done])
    assert unobserved.total("a") == {"CPU": 2.0}


def test_nothing_is_asked_where_there_are_no_tasks() -> None:
    def fail(_: object) -> list[object]:
        raise AssertionError("asked")

    some_claims((1.0, None)).drop_finished("a", fail)
    UnobservedClaims().drop_finished("a", fail)


@given(st.lists(st.floats(0, 100)), st.floats(0, 100))
def test_the_sum_is_always_that_of_what_is_held(times: list[float], before: float) -> None:
    unobserved = some_claims(*((at, None) for at in times))
    unobserved.drop_sent("a", before=before)
    assert unobserved.total("a").get("CPU", 0.0) == sum(at >= before for at in times)
