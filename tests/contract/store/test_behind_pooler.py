"""The store behind a pooler of transactions, such as pgbouncer: the same tests, and its notifications."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.contract.store import (
    test_group_commit,
    test_history,
    test_leadership,
    test_moves,
    test_news,
    test_races,
)
from tests.contract.store.conftest import OpenStore
from tests.contract.store.paused_commit import PATIENCE_S, threads
from tests.contract.store.transaction_pooler import PGBOUNCER, SERVER_CONNECTIONS, a_pooler
from tests.support.builders import NOW, a_spec
from tests.support.postgres import PostgresServer

from ray_multicluster_scheduler.store import Store
from ray_multicluster_scheduler.store.postgres.database import (
    PostgresAddress,
    PostgresDatabase,
    postgres_address,
)
from ray_multicluster_scheduler.store.postgres.opening import open_postgres_store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PGBOUNCER is None,
        reason="NOT TESTED: pgbouncer is not installed, so nobody has tried the store behind it here",
    ),
]
FOR_EVER = 3600.0
STORES = 4 * SERVER_CONNECTIONS

one, other = test_races.one, test_races.other
test_what_add_returns_is_what_is_stored = test_group_commit.test_what_add_returns_is_what_is_stored
test_many_threads_get_their_own_jobs_back = test_group_commit.test_many_threads_get_their_own_jobs_back
test_every_change_wakes_who_waits = test_news.test_every_change_wakes_who_waits
test_a_write_that_fails_is_no_news = test_news.test_a_write_that_fails_is_no_news
test_a_closed_store_wakes_and_refuses = test_news.test_a_closed_store_wakes_and_refuses
test_a_late_leader = test_races.test_a_leader_whose_time_is_over_cannot_write_after_its_successor
test_two_want_the_lease = test_races.test_two_that_want_the_lease_at_once_never_both_get_it
test_numbers_in_order = test_races.test_a_lower_number_never_becomes_visible_after_a_higher_one
test_several_moves = test_moves.test_several_moves_of_one_job_in_a_call_are_made_in_order
test_one_claims_a_job = test_moves.test_of_racing_threads_exactly_one_claims_a_job
test_a_lease_is_renewed_by_its_holder = test_leadership.test_a_lease_is_renewed_by_its_holder
test_of_racing_threads_one_leads = test_leadership.test_of_racing_threads_one_leads
test_a_former_leader_is_refused = (
    test_leadership.test_every_fenced_write_of_a_former_leader_is_refused_and_leaves_no_trace
)
test_events_come_in_order = test_history.test_events_come_in_order_of_one_job_or_of_all
test_snapshots_come_back = test_history.test_snapshots_come_back_as_they_were_published
test_the_same_id_twice_at_once_is_one_job = test_races.test_the_same_id_twice_at_once_is_one_job


@pytest.fixture(scope="module")
def pooler(postgres: PostgresServer) -> Iterator[int]:
    with a_pooler(postgres) as port:
        yield port


@pytest.fixture
def schema() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def direct(postgres: PostgresServer, schema: str) -> PostgresAddress:
    return postgres_address(postgres.url(schema))


@pytest.fixture
def pooled(postgres: PostgresServer, pooler: int, schema: str) -> PostgresAddress:
    return postgres_address(postgres.url(schema, pooler))


@pytest.fixture(params=["listens directly", "does not listen"])
def open_again(request: pytest.FixtureRequest, pooled: PostgresAddress, direct: PostgresAddress) -> OpenStore:
    listen_at = direct if request.param == "listens directly" else None
    return lambda: open_postgres_store(pooled, listen_at=listen_at)


@pytest.fixture
def store(open_again: OpenStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(PostgresDatabase, "time", lambda _, _tx, own: own)
    opened = open_again()
    yield opened
    opened.close()


@pytest.fixture
def elsewhere(direct: PostgresAddress, store: Store) -> Iterator[Store]:
    """The same store, of another process that does not use the pooler."""
    opened = open_postgres_store(direct)
    assert opened.store_id == store.store_id
    yield opened
    opened.close()


CHANGES: dict[str, Callable[[Store], object]] = {
    "add": lambda there: there.jobs.add([("new", a_spec())], now=NOW),
    "stop": lambda there: there.jobs.request_stop(["job"], now=NOW, reason="stop"),
    "drain": lambda there: there.clusters.set_drained("a", drained=True, reason="", now=NOW),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_of_others_are_noticed_with_and_without_an_address_to_listen_at(
    store: Store, elsewhere: Store, change: Callable[[Store], object]
) -> None:
    store.jobs.add([("job", a_spec())], now=NOW)
    seen = store.changes.wait(0, timeout_s=0.0)
    marks: list[int] = []
    waiter = threading.Thread(target=lambda: marks.append(store.changes.wait(seen, timeout_s=FOR_EVER)))
    waiter.start()
    change(elsewhere)
    waiter.join()
    assert marks[0] > seen


def test_more_writers_than_the_pooler_has_connections_all_get_their_turn(open_again: OpenStore) -> None:
    """Those that wait for the lock have all connections, and the one that has it still needs to flush."""
    stores = [open_again() for _ in range(STORES)]
    with threads() as pool:
        calls = [
            pool.submit(store.jobs.add, [(f"job-{number}-{round_}", a_spec())], now=NOW)
            for round_ in range(3)
            for number, store in enumerate(stores)
        ]
        for call in calls:
            call.result(PATIENCE_S)
    assert len(stores[0].queue.arrivals(after=0, limit=1000)) == len(calls)
    for store in stores:
        store.close()


def test_notifications_that_the_pooler_passes_on_are_not_collected(
    pooled: PostgresAddress, direct: PostgresAddress
) -> None:
    """A LISTEN stays on a connection of the server, which the pooler then gives to others."""
    store = open_postgres_store(pooled)
    elsewhere = open_postgres_store(direct)
    store.changes.wait(0, timeout_s=0.0)  # it listens
    for number in range(2):
        with ExitStack() as stack:
            used = [stack.enter_context(store._database.read()) for _ in range(SERVER_CONNECTIONS)]
            elsewhere.jobs.add([(f"job-{number}", a_spec())], now=NOW)  # told at the end of a transaction
            drivers: list[Any] = [tx.connection.driver_connection for tx in used]
    assert not [driver._notifies_backlog for driver in drivers if driver._notifies_backlog]
    for each in (store, elsewhere):
        each.close()
