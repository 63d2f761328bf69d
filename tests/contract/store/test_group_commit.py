"""Many submitters at once: one commit for several of them, each with his own answer."""

import threading

from tests.support.builders import NOW, a_spec

from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.model.job import Job, JobSpec
from ray_multicluster_scheduler.store import Store
from ray_multicluster_scheduler.store.accept import Call, add_calls


def added(store: Store, *calls: list[tuple[str, JobSpec]]) -> list[tuple[str, ...] | str]:
    """Write calls in one transaction, as a group of threads does; return ids, or the kind of refusal."""
    with store._database.write() as tx:
        outcomes = add_calls(tx, [Call(requests=call, now=NOW + n) for n, call in enumerate(calls)])
    return [
        type(each).__name__ if isinstance(each, SchedulerError) else tuple(j.submission_id for j in each)
        for each in outcomes
    ]


def test_calls_that_share_a_transaction_keep_their_own_answers_and_times(store: Store) -> None:
    assert added(store, [("a", a_spec()), ("b", a_spec())], [("c", a_spec())]) == [("a", "b"), ("c",)]
    assert [(store.jobs.get(each).accepted_at, store.jobs.get(each).seq) for each in "abc"] == [
        (NOW, 1),
        (NOW, 2),
        (NOW + 1, 3),
    ]


def test_a_refused_call_leaves_nothing_behind_and_does_not_harm_its_neighbours(store: Store) -> None:
    circle = [("x", a_spec(depends_on=("y",))), ("y", a_spec(depends_on=("x",)))]
    assert added(store, [("a", a_spec())], circle, [("a", a_spec())], [("b", a_spec())]) == [
        ("a",),
        "DependencyProblem",
        "DuplicateSubmission",
        ("b",),
    ]
    assert set(store.jobs.get_many(["a", "b", "x", "y"])) == {"a", "b"}


def test_two_calls_with_one_idempotency_key_get_one_job(store: Store) -> None:
    spec = a_spec(idempotency_key="nightly")
    assert added(store, [("a", spec)], [("b", spec)]) == [("a",), ("a",)]


def test_what_add_returns_is_what_is_stored(store: Store) -> None:
    made = store.jobs.add([("a", a_spec(tags=("x",), metadata={"k": "v"})), ("b", a_spec())], now=NOW)
    assert made == (store.jobs.get("a"), store.jobs.get("b"))


def test_many_threads_get_their_own_jobs_back(store: Store) -> None:
    returned: dict[str, tuple[Job, ...]] = {}

    def submitter(number: int) -> None:
        for index in range(5):
            name = f"job-{number}-{index}"
            returned[name] = store.jobs.add([(name, a_spec())], now=NOW)

    threads = [threading.Thread(target=submitter, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: (store.jobs.get(name),) for name in returned} == returned
    assert sorted(job.seq for (job,) in returned.values()) == list(range(1, 81))
    assert len(store.history.events()) == 80
