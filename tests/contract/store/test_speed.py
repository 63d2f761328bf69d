"""What is done for every job costs the same however many there are: each statement uses an index."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.model.job import Transition
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store, open_store

#: Everything that happens between the arrival of a job and its end.
CALLS: dict[str, Callable[[Leader], object]] = {
    "add": lambda leader: leader.store.jobs.add(
        [("new", a_spec(idempotency_key="k", depends_on=("old",)))], now=NOW
    ),
    "arrivals": lambda leader: leader.store.queue.arrivals(after=1, limit=100),
    "all arrivals": lambda leader: leader.store.queue.arrivals(after=0, limit=100),
    "stopping": lambda leader: leader.store.queue.stopping(),
    "get_many": lambda leader: leader.store.jobs.get_many(["old"]),
    "apply": lambda leader: leader.store.jobs.apply(
        [
            Transition(
                submission_id="old",
                expected=JobState.QUEUED,
                attempt=0,
                new=JobState.PLACED,
                reason="placed",
                changes={"cluster": "a"},
            )
        ],
        epoch=leader.lease.epoch,
        now=NOW,
    ),
    "logs": lambda leader: leader.store.jobs.apply(
        [], logs=[("old", 1, "text")], epoch=leader.lease.epoch, now=NOW
    ),
    "named": lambda leader: leader.store.jobs.list(name="nightly"),
    "newest named": lambda leader: leader.store.jobs.list(name="nightly", limit=1),
    "grouped": lambda leader: leader.store.jobs.list(group="sweep"),
    "first of a group": lambda leader: leader.store.jobs.add([("new", a_spec(group="sweep"))], now=NOW),
    "member_counts": lambda leader: leader.store.jobs.member_counts(["old"]),
    "members": lambda leader: leader.store.jobs.list(head="old", limit=100),
    "request_stop": lambda leader: leader.store.jobs.request_stop(["old"], now=NOW, reason="enough"),
}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Leader]:
    store = open_store(tmp_path / "store")
    leader = Leader(store)
    store.jobs.add([("old", a_spec()), ("older", a_spec())], now=NOW)
    yield leader
    store.close()


def plans_of(store: Store, call: Callable[[], object]) -> list[str]:
    """Return how SQLite looks for the rows of each statement in a call."""
    plans: list[str] = []

    def explain(_: object, cursor: sqlite3.Cursor, statement: str, parameters: object, *__: object) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            first = parameters[0] if isinstance(parameters, list) else parameters
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", first).fetchall()
            plans.extend(f"{row[3]} <- {statement}" for row in rows)

    event.listen(store._database._engine, "before_cursor_execute", explain)
    call()
    return plans


@pytest.mark.parametrize("name", CALLS)
def test_no_statement_on_the_way_of_a_job_reads_a_whole_table(filled: Leader, name: str) -> None:
    plans = plans_of(filled.store, lambda: CALLS[name](filled))
    one_row_only = ("SCAN meta", "SCAN lease", "SCAN alembic_version")
    assert plans
    assert not [plan for plan in plans if plan.startswith("SCAN") and not plan.startswith(one_row_only)]


def test_new_jobs_are_found_by_their_number_among_neither_those_that_wait_nor_those_that_ended(
    filled: Leader,
) -> None:
    (plan, *_) = plans_of(filled.store, lambda: filled.store.queue.arrivals(after=1, limit=100))
    assert plan.startswith("SEARCH jobs USING INDEX ix_jobs_state (state=? AND seq>?)")


@pytest.mark.parametrize("filters", [{"name": "nightly"}, {"group": "sweep"}])
def test_the_jobs_of_one_name_are_read_from_the_newest_on_without_sorting(
    filled: Leader, filters: dict[str, str]
) -> None:
    (plan,) = plans_of(filled.store, lambda: filled.store.jobs.list(**filters, limit=1))
    assert plan.startswith(f"SEARCH jobs USING INDEX ix_jobs_{next(iter(filters))} ")


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ({}, "ix_jobs_heads"),
        ({"before": 5}, "ix_jobs_heads (seq<?)"),
        ({"text": "train"}, "ix_jobs_heads"),
        ({"user": "ann"}, "ix_jobs_heads_user (user=?)"),
        ({"user": "ann", "before": 5}, "ix_jobs_heads_user (user=? AND seq<?)"),
        ({"states": [JobState.QUEUED]}, "ix_jobs_heads_state (state>? AND state<?)"),
        ({"states": [JobState.QUEUED], "user": "ann"}, "ix_jobs_heads_state (state=?)"),
    ],
    ids=str,
)
def test_a_page_of_heads_reads_only_heads_and_sorts_none(
    filled: Leader, filters: dict[str, Any], index: str
) -> None:
    (plan,) = plans_of(filled.store, lambda: filled.store.jobs.list(heads_only=True, limit=1, **filters))
    assert plan.startswith((f"SCAN jobs USING INDEX {index} <-", f"SEARCH jobs USING INDEX {index} <-"))


def test_the_members_of_a_head_are_counted_in_an_index_and_read_without_sorting(filled: Leader) -> None:
    store = filled.store
    (plan,) = plans_of(store, lambda: store.jobs.member_counts(["old"]))
    assert plan.startswith("SEARCH jobs USING COVERING INDEX ix_jobs_members (head=?)")
    by_state = plans_of(store, lambda: store.jobs.list(head="old", limit=1))[1:]
    assert {plan.split(" <-")[0] for plan in by_state} == {
        "SEARCH jobs USING INDEX ix_jobs_members (head=? AND state>? AND state<?)",
        "SEARCH jobs USING INDEX sqlite_autoindex_jobs_1 (submission_id=?)",
    }


def test_the_head_of_a_group_is_found_among_heads_only(filled: Leader) -> None:
    store = filled.store
    (plan, *_) = plans_of(store, lambda: store.jobs.list(heads_only=True, group="sweep"))
    assert plan.startswith("SEARCH jobs USING INDEX uq_jobs_head_group (head_group=?)")
    plans = plans_of(store, lambda: store.jobs.add([("new", a_spec(group="sweep"))], now=NOW))
    assert [plan for plan in plans if plan.startswith("SEARCH jobs USING INDEX uq_jobs_head_group ")]


@pytest.mark.parametrize("filters", [{}, {"cluster": "a"}, {"user": "ann"}, {"cluster": "a", "user": "ann"}])
def test_a_timeline_does_not_read_what_ended_before_it(filled: Leader, filters: dict[str, str]) -> None:
    store = filled.store
    plans = plans_of(store, lambda: store.history.spans(since=NOW, until=NOW + 1, limit=10, **filters))
    found = [plan.split(" <-")[0] for plan in plans if " attempts " in plan.split(" <-")[0]]
    assert found == [
        "SEARCH attempts USING INDEX ix_attempts_placed (placed_at>? AND placed_at<?)",
        "SCAN attempts USING INDEX ix_attempts_live",
        "SEARCH attempts USING INDEX ix_attempts_ended (ended_at>?)",
    ]


@pytest.mark.parametrize("name", ["blocked", "stopping"])
def test_what_a_pass_asks_for_does_not_go_through_all_that_wait(filled: Leader, name: str) -> None:
    """Their own partial indexes hold the few jobs that they are about."""
    store = filled.store
    calls = {
        "blocked": lambda: store.queue.blocked(now=NOW),
        "stopping": store.queue.stopping,
    }
    plans = plans_of(store, calls[name])
    assert plans
    assert not [plan for plan in plans if "ix_jobs_state " in plan or plan.startswith("SCAN jobs")]


def test_adding_many_jobs_takes_as_many_statements_as_adding_one(filled: Leader) -> None:
    counted: list[str] = []
    event.listen(
        filled.store._database._engine,
        "before_cursor_execute",
        lambda _c, _cursor, statement, *_: counted.append(statement),
    )
    filled.store.jobs.add([("one", a_spec())], now=NOW)
    single = len(counted)
    filled.store.jobs.add([(f"job-{n}", a_spec()) for n in range(500)], now=NOW)
    assert len(counted) - single == single


def test_a_group_takes_one_statement_more_and_a_job_without_one_none(filled: Leader) -> None:
    counted: list[str] = []
    event.listen(
        filled.store._database._engine,
        "before_cursor_execute",
        lambda _c, _cursor, statement, *_: counted.append(statement),
    )
    takes = []
    for number, groups in enumerate([[None], ["g"], ["g", "h", "g"]]):
        counted.clear()
        jobs = [(f"job-{number}-{n}", a_spec(group=group)) for n, group in enumerate(groups)]
        filled.store.jobs.add(jobs, now=NOW)
        takes.append(len(counted))
    assert takes == [takes[0], takes[0] + 1, takes[0] + 1]


def test_arrivals_tell_what_a_job_still_waits_for(filled: Leader) -> None:
    store = filled.store
    store.jobs.add([("next", a_spec(depends_on=("old", "older")))], now=NOW)
    assert [
        (job.submission_id, sorted(needs)) for job, needs in store.queue.arrivals(after=0, limit=100)
    ] == [
        ("old", []),
        ("older", []),
        ("next", ["old", "older"]),
    ]
    assert [job.submission_id for job, _ in store.queue.arrivals(after=1, limit=1)] == ["older"]
    store.jobs.request_stop(["older"], now=NOW, reason="enough")
    assert [job.submission_id for job, _ in store.queue.arrivals(after=0, limit=100)] == ["old", "next"]
