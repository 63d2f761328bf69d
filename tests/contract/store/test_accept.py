"""`add`: all or none, once per idempotency key, dependencies known and without a circle."""

import itertools
import re

import pytest
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import (
    DependencyProblem,
    DuplicateSubmission,
    InvalidRequest,
    JobNotFound,
    QuotaExceeded,
)
from ray_multicluster_scheduler.model.access import Quota, Terms
from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store


def add(store: Store, submission_id: str = "job", **spec: object) -> None:
    store.jobs.add([(submission_id, a_spec(**spec))], now=NOW)


def test_an_accepted_job_is_queued_and_read_back_as_it_was_given(store: Store) -> None:
    spec = a_spec(
        name="训练",
        runtime_env={"env_vars": {"A": "1"}, "pip": ["x==1"]},
        metadata={"k": "v"},
        tags=("gpu", "night"),
        requirements={"CPU": 2.5, "memory": 2.0**33},
        entrypoint_memory=2**40,
        entrypoint_resources={"slot": 0.5},
        priority=-3,
        on_unreachable=90.0,
        queue_timeout_s=60.0,
        group="array",
    )

    (job,) = store.jobs.add([("job", spec)], now=NOW)

    assert job == store.jobs.get("job")
    assert job.spec == spec
    assert (job.state, job.target, job.attempt) == (JobState.QUEUED, Target.FINISHED, 0)
    assert job.accepted_at == job.changed_at == NOW


def test_an_accepted_job_has_its_first_event(store: Store) -> None:
    add(store)

    (event,) = store.history.events("job")

    assert (event.old, event.new, event.at, event.attempt) == (None, JobState.QUEUED, NOW, 0)


def test_jobs_are_numbered_in_the_order_of_acceptance(store: Store) -> None:
    first = store.jobs.add([("c", a_spec()), ("a", a_spec())], now=NOW)
    (last,) = store.jobs.add([("b", a_spec())], now=NOW)

    assert [job.submission_id for job in first] == ["c", "a"]
    assert first[0].seq < first[1].seq < last.seq


def test_adding_nothing_is_fine(store: Store) -> None:
    assert store.jobs.add([], now=NOW) == ()


def test_two_jobs_with_identical_content_are_two_jobs(store: Store) -> None:
    assert len({job.seq for job in store.jobs.add([("a", a_spec()), ("b", a_spec())], now=NOW)}) == 2


def test_a_taken_id_is_refused_and_nothing_of_the_call_is_written(store: Store) -> None:
    add(store, "taken")

    with pytest.raises(DuplicateSubmission, match="'taken' already exists"):
        store.jobs.add([("new", a_spec()), ("taken", a_spec())], now=NOW)

    with pytest.raises(JobNotFound):
        store.jobs.get("new")


def test_a_check_refuses_what_add_refuses_and_writes_nothing(store: Store) -> None:
    add(store, "taken")
    quotas = Terms(quotas={"*": Quota(jobs=1)})

    store.jobs.check_add([("new", a_spec())], now=NOW)
    with pytest.raises(DuplicateSubmission, match="'taken' already exists"):
        store.jobs.check_add([("taken", a_spec())], now=NOW)
    with pytest.raises(DependencyProblem, match="'b' depends on 'a', which is not known"):
        store.jobs.check_add([("b", a_spec(depends_on=("a",)))], now=NOW)
    with pytest.raises(QuotaExceeded):
        store.jobs.check_add([("new", a_spec())], now=NOW, terms=quotas)

    assert [job.submission_id for job in store.jobs.list()] == ["taken"]


def test_one_id_twice_in_a_call_is_refused(store: Store) -> None:
    with pytest.raises(DuplicateSubmission, match="twice"):
        store.jobs.add([("a", a_spec()), ("a", a_spec())], now=NOW)


def test_an_id_that_looks_like_a_retry_of_another_job_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequest, match="'a--r2'"):
        add(store, "a--r2")


@pytest.mark.parametrize("again", ["first", "other"])
def test_the_same_idempotency_key_returns_the_known_job(store: Store, again: str) -> None:
    add(store, "first", idempotency_key="k")

    (job,) = store.jobs.add(
        [(again, a_spec(idempotency_key="k", entrypoint="python changed.py"))], now=NOW + 1
    )

    assert job == store.jobs.get("first")
    assert len(store.jobs.list()) == 1


def test_an_idempotency_key_belongs_to_its_user(store: Store) -> None:
    add(store, "hers", idempotency_key="k", user="ann")

    add(store, "his", idempotency_key="k", user="bob")

    assert store.jobs.get("his").spec.user == "bob"


def test_a_taken_id_with_another_key_is_refused(store: Store) -> None:
    add(store, "a", idempotency_key="k")

    with pytest.raises(DuplicateSubmission):
        add(store, "a", idempotency_key="other")


def test_the_same_key_twice_in_a_call_is_one_job(store: Store) -> None:
    jobs = store.jobs.add([("a", a_spec(idempotency_key="k")), ("b", a_spec(idempotency_key="k"))], now=NOW)

    assert [job.submission_id for job in jobs] == ["a", "a"]


def test_a_repeated_call_may_mix_known_and_new_jobs(store: Store) -> None:
    add(store, "first", idempotency_key="k")

    known, new = store.jobs.add(
        [("again", a_spec(idempotency_key="k")), ("new", a_spec(depends_on=("again",)))], now=NOW
    )

    assert known.submission_id == "first"
    assert new.spec.depends_on == ("first",)


def test_an_unknown_dependency_is_refused(store: Store) -> None:
    with pytest.raises(DependencyProblem, match="'b' depends on 'a', which is not known"):
        add(store, "b", depends_on=("a",))


def test_jobs_of_one_call_may_depend_on_each_other_in_any_order(store: Store) -> None:
    store.jobs.add(
        [("late", a_spec(depends_on=("first",))), ("first", a_spec()), ("end", a_spec(depends_on=("late",)))],
        now=NOW,
    )

    assert [job.submission_id for job in store.queue.runnable(now=NOW)] == ["first"]


def test_a_circle_of_dependencies_is_refused_by_name(store: Store) -> None:
    circle = [
        ("a", a_spec(depends_on=("b",))),
        ("b", a_spec(depends_on=("c",))),
        ("c", a_spec(depends_on=("a",))),
    ]

    with pytest.raises(DependencyProblem) as caught:
        store.jobs.add(circle, now=NOW)

    path = re.findall(r"'(\w)'", str(caught.value))
    assert path[0] == path[-1]
    needs = {name: spec.depends_on[0] for name, spec in circle}
    assert all(needs[one] == other for one, other in itertools.pairwise(path))
    assert store.jobs.list() == ()


def test_a_job_cannot_wait_for_itself(store: Store) -> None:
    with pytest.raises(DependencyProblem, match="'a' -> 'a'"):
        add(store, "a", depends_on=("a",))


def test_a_dependency_that_succeeded_before_is_no_obstacle(store: Store, leader: Leader) -> None:
    leader.add("done", JobState.SUCCEEDED)

    add(store, "next", depends_on=("done", "done"))

    assert [job.submission_id for job in store.queue.runnable(now=NOW)] == ["next"]


def test_a_dependency_that_failed_before_blocks_at_once(store: Store, leader: Leader) -> None:
    leader.add("broken", JobState.FAILED)

    add(store, "next", depends_on=("broken",))

    assert [job.submission_id for job, _ in store.queue.blocked(now=NOW)] == ["next"]


def test_a_call_of_thousands_is_one_transaction(store: Store) -> None:
    many = [(f"job-{number}", a_spec(depends_on=("job-0",) if number else ())) for number in range(2500)]

    assert len(store.jobs.add(many, now=NOW)) == 2500
    assert len(store.jobs.get_many([name for name, _ in many])) == 2500
