"""A job is found by its submission id, by the `job_id` of its user, or with its group."""

import pytest
from tests.support.builders import NOW, a_spec

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.service.jobs import find, find_each
from ray_multicluster_scheduler.store import Store, open_memory_store


@pytest.fixture
def store() -> Store:
    store = open_memory_store()
    store.jobs.add([("monday", a_spec(name="nightly"))], now=NOW)
    store.jobs.add([("tuesday", a_spec(name="nightly"))], now=NOW + 1)
    store.jobs.add([(f"sweep-{n}", a_spec(name="trial", group="sweep")) for n in range(3)], now=NOW + 2)
    return store


@pytest.mark.parametrize(
    ("word", "ids"),
    [
        ("monday", ["monday"]),
        ("nightly", ["tuesday"]),
        ("sweep", ["sweep-0", "sweep-1", "sweep-2"]),
        ("trial", ["sweep-0", "sweep-1", "sweep-2"]),
        ("mond", ["monday"]),
        ("sweep-1", ["sweep-1"]),
    ],
)
def test_a_word_is_an_id_or_its_beginning_or_the_newest_of_a_name_or_a_group_oldest_first(
    store: Store, word: str, ids: list[str]
) -> None:
    assert [job.submission_id for job in find(store, word)] == ids


def test_an_id_goes_before_a_name_and_a_name_before_a_group(store: Store) -> None:
    store.jobs.add([("x", a_spec(name="monday")), ("y", a_spec(name="sweep"))], now=NOW + 3)
    assert [job.submission_id for job in find(store, "monday")] == ["monday"]
    assert [job.submission_id for job in find(store, "sweep")] == ["y"]


def test_where_one_job_is_meant_it_is_the_newest_of_its_name(store: Store) -> None:
    found = find_each(store, ["monday", "nightly", "tuesday"])
    assert [job.submission_id for job in found] == ["monday", "tuesday"]


@pytest.mark.parametrize(
    ("word", "guess"), [("mondya", "monday"), ("Nightly", "nightly"), ("night", "nightly"), ("swep", "sweep")]
)
def test_a_word_that_means_nothing_is_answered_with_the_nearest_one(
    store: Store, word: str, guess: str
) -> None:
    for look in (lambda: find(store, word), lambda: find_each(store, ["monday", word])):
        with pytest.raises(JobNotFound, match=f"did you mean '{guess}'"):
            look()


def test_a_group_is_not_one_job(store: Store) -> None:
    with pytest.raises(JobNotFound):
        find_each(store, ["sweep"])


def test_the_beginning_of_several_ids_means_none_of_them(store: Store) -> None:
    with pytest.raises(JobNotFound, match=r"^3 jobs begin with 'sweep-'; write more of the id"):
        find(store, "sweep-")
    with pytest.raises(JobNotFound):
        find(store, "mon")  # too short to be meant
