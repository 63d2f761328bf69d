"""What was just placed counts until a look at the cluster shows it, or until it is done."""

from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.tasks.unobserved_claims import Entry, Ledger


def a_ledger(*entries: tuple[float, object]) -> Ledger:
    """Return a ledger with one-CPU entries: (when, ref)."""
    ledger = Ledger()
    for at, ref in entries:
        ledger.add("a", Entry({"CPU": 1.0}, at, ref))
    return ledger


def test_claims_add_up_per_cluster() -> None:
    ledger = a_ledger((1.0, None), (2.0, None))
    ledger.add("b", Entry({"GPU": 1.0}, 3.0))
    assert ledger.unseen("a") == {"CPU": 2.0}
    assert ledger.unseen("b") == {"GPU": 1.0}
    assert ledger.unseen("c") == {}


def test_what_is_older_than_the_look_is_in_the_look() -> None:
    ledger = a_ledger((1.0, None), (2.0, None), (3.0, None))
    ledger.forget("a", before=2.0)
    assert ledger.unseen("a") == {"CPU": 2.0}


def test_a_finished_task_no_longer_counts_and_an_actor_does() -> None:
    done, running = object(), object()
    ledger = a_ledger((1.0, done), (1.0, running), (1.0, None))
    ledger.settle("a", lambda refs: [ref for ref in refs if ref is done])
    assert ledger.unseen("a") == {"CPU": 2.0}


def test_nothing_is_asked_where_there_are_no_tasks() -> None:
    def fail(_: object) -> list[object]:
        raise AssertionError("asked")

    a_ledger((1.0, None)).settle("a", fail)
    Ledger().settle("a", fail)


@given(st.lists(st.floats(0, 100)), st.floats(0, 100))
def test_the_sum_is_always_that_of_what_is_held(times: list[float], before: float) -> None:
    ledger = a_ledger(*((at, None) for at in times))
    ledger.forget("a", before=before)
    assert ledger.unseen("a").get("CPU", 0.0) == sum(at >= before for at in times)
