"""Long lists in pages: nothing twice, nothing left out, whatever is filtered and happens meanwhile."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.builders import NOW, a_spec
from tests.support.leader import WAY, Leader

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store

S = JobState
STATES = (S.QUEUED, S.PLACED, S.RUNNING, S.SUCCEEDED, S.FAILED)


def fill(leader: Leader, count: int = 23) -> list[str]:
    """Jobs of every kind, newest first: each filter matches some of them."""
    for number in range(count):
        spec = a_spec(
            entrypoint=f"python /data/Train_{number % 4}.py",
            user=("ann", "bob")[number % 2],
            name=f"nightly-{number % 3}",
            group=f"group-{number % 5}",
            tags=("gpu",) if number % 3 else ("cpu", "gpu"),
            parent="job-0" if number % 4 == 1 else None,
        )
        leader.store.jobs.add([(f"job-{number}", spec)], now=NOW + number)
        for state in WAY[STATES[number % len(STATES)]]:
            leader.move(
                f"job-{number}", state, **({"cluster": "ab"[number % 2]} if state is S.PLACED else {})
            )
    return [f"job-{number}" for number in range(count)][::-1]


def pages(store: Store, size: int, **filters: Any) -> Iterator[list[str]]:
    before: int | None = None
    while found := store.jobs.list(**filters, before=before, limit=size):
        yield [job.submission_id for job in found]
        before = found[-1].seq


def walked(store: Store, size: int, **filters: Any) -> list[str]:
    return [each for page in pages(store, size, **filters) for each in page]


@pytest.mark.parametrize("size", [1, 4, 22, 23, 24])
def test_pages_are_the_list(store: Store, leader: Leader, size: int) -> None:
    ids = fill(leader)
    found = list(pages(store, size))
    assert [each for page in found for each in page] == ids
    assert [len(page) for page in found[:-1]] == [size] * (len(found) - 1)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({"user": "bob"}, lambda number: number % 2 == 1),
        ({"cluster": "a"}, lambda number: number % 2 == 0 and number % 5),
        ({"name": "nightly-2"}, lambda number: number % 3 == 2),
        ({"group": "group-3"}, lambda number: number % 5 == 3),
        ({"parent": "job-0"}, lambda number: number % 4 == 1),
        ({"tag": "cpu"}, lambda number: number % 3 == 0),
        ({"since": NOW + 7}, lambda number: number >= 7),
        ({"states": [S.RUNNING]}, lambda number: number % 5 == 2),
        ({"states": [S.FAILED, S.QUEUED, S.FAILED]}, lambda number: number % 5 in {0, 4}),
        ({"states": []}, lambda _: False),
        ({"text": "train_3"}, lambda number: number % 4 == 3),
        ({"text": "NIGHTLY-1"}, lambda number: number % 3 == 1),
        ({"text": "group-4"}, lambda number: number % 5 == 4),
        ({"text": "job-1"}, lambda number: number == 1 or (number >= 10 and number < 20)),
        ({"states": [S.QUEUED, S.RUNNING], "user": "ann"}, lambda number: number % 10 in {0, 2}),
        ({"text": "train_0", "tag": "cpu", "since": NOW + 1}, lambda number: number == 12),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_every_filter_holds_over_all_pages(
    store: Store, leader: Leader, filters: dict[str, Any], wanted: Any
) -> None:
    ids = [each for each in fill(leader) if wanted(int(each.removeprefix("job-")))]
    for size in (1, 3, 100):
        assert walked(store, size, **filters) == ids


def test_jobs_are_found_by_the_time_at_which_they_came_into_their_state(store: Store, leader: Leader) -> None:
    for number in range(4):
        leader.add(f"job-{number}", S.RUNNING)
        leader.move(f"job-{number}", S.FAILED, now=NOW + 10 * number)
    leader.add("waits")
    then = {"changed_since": NOW + 10, "changed_until": NOW + 30}
    assert walked(store, 1, **then) == walked(store, 9, states=[S.FAILED], **then) == ["job-2", "job-1"]
    assert walked(store, 9, changed_until=NOW + 1) == ["waits", "job-0"]
    assert store.jobs.counts([S.FAILED, S.QUEUED], changed_since=NOW + 20) == {S.FAILED: 2}


@pytest.mark.parametrize("text", ["%", "_ata", "data\\", "job-%", "[a-z]"])
def test_a_text_is_taken_as_it_is(store: Store, leader: Leader, text: str) -> None:
    fill(leader, 3)
    assert store.jobs.list(text=text) == ()
    leader.add("odd", entrypoint=f"echo {text}")
    assert [job.submission_id for job in store.jobs.list(text=text)] == ["odd"]


def test_pages_stay_as_they_are_while_jobs_are_added_and_move(store: Store, leader: Leader) -> None:
    ids = fill(leader)
    seen: list[str] = []
    for number, page in enumerate(pages(store, 4)):
        seen += page
        leader.add(f"later-{number}")
        leader.move(f"later-{number}", S.PLACED)
    assert seen == ids


def test_the_last_attempts_of_a_job_can_be_asked_for(store: Store, leader: Leader) -> None:
    leader.add("job")
    for _ in range(5):
        leader.move("job", S.PLACED, S.QUEUED)
    assert [each.number for each in store.history.attempts("job")] == [1, 2, 3, 4, 5]
    assert [each.number for each in store.history.attempts("job", last=2)] == [4, 5]
    assert [each.number for each in store.history.attempts("job", last=9)] == [1, 2, 3, 4, 5]
