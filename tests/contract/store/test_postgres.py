"""What only a store on a server has: restarts, clocks of several machines, poolers, passwords."""

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.contract.store.conftest import OpenStore, opener
from tests.support.builders import NOW, a_spec
from tests.support.postgres import PostgresServer, a_postgres
from tests.support.waiting import PATIENCE_S, until

from ray_multicluster_scheduler.errors import DuplicateSubmission, ForeignStore, StoreBusy, StoreError
from ray_multicluster_scheduler.store import Store
from ray_multicluster_scheduler.store.postgres.database import PostgresDatabase, postgres_address
from ray_multicluster_scheduler.store.postgres.opening import open_postgres_store

TRIES = 6000


@pytest.fixture
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    return opener(request, "postgres", tmp_path)


@pytest.fixture
def store(open_again: OpenStore) -> Iterator[Store]:
    opened = open_again()
    yield opened
    opened.close()


def test_a_lease_is_measured_by_the_clock_of_the_server(store: Store, open_again: OpenStore) -> None:
    lease = store.leases.acquire("one", ttl_s=30.0, now=NOW)
    assert lease is not None
    other = open_again()
    for skew in (-60.0, 0.0, 60.0):
        assert other.leases.acquire("other", ttl_s=30.0, now=NOW + skew) is None
        current = other.leases.current(now=NOW + skew)
        assert current is not None
        assert current.holder == "one"
    store.leases.release(lease)
    assert other.leases.acquire("other", ttl_s=30.0, now=NOW - 60) is not None
    other.close()


def test_how_far_the_server_is_ahead_is_known(store: Store) -> None:
    before = time.time()
    with store._database.read() as tx:
        now = store._database.time(tx, 0.0)
    assert before - 1.0 <= now - store.ahead_s <= time.time() + 1.0


def test_nothing_that_was_accepted_is_lost_when_the_server_is_restarted_and_killed() -> None:
    with a_postgres() as server:
        address = postgres_address(server.url())
        stores = [open_postgres_store(address) for _ in range(2)]
        accepted: list[str] = []
        done = threading.Event()

        def submit(store: Store, name: str) -> None:
            number = 0
            while not done.is_set() or number < 20:
                if _added(store, f"{name}-{number}"):
                    accepted.append(f"{name}-{number}")
                number += 1

        writers = [
            threading.Thread(target=submit, args=(store, f"writer-{number}"))
            for number, store in enumerate((*stores, *stores))
        ]
        for writer in writers:
            writer.start()
        try:
            for end in (server.stop, server.kill, server.stop):
                enough = len(accepted) + 30
                until(
                    lambda enough=enough: len(accepted) >= enough, told=lambda: "nothing is accepted any more"
                )
                end()
                server.start()
        finally:
            done.set()
            for writer in writers:
                writer.join()
        _check(stores[0], accepted)
        for store in stores:
            store.close()


def _added(store: Store, submission_id: str) -> bool:
    """Add a job as a careful client does: again and again under the same id."""
    tick = threading.Event()
    for _ in range(TRIES):
        try:
            store.jobs.add([(submission_id, a_spec())], now=NOW)
        except DuplicateSubmission:  # the answer to an earlier try was lost
            return True
        except StoreBusy:
            tick.wait(0.05)
        else:
            return True
    return False


def _check(store: Store, accepted: list[str]) -> None:
    kept = {job.submission_id for job in store.jobs.list()}
    assert set(accepted) <= kept
    sequence = [job.seq for job, _ in store.queue.arrivals(after=0, limit=10**6)]
    assert sequence == sorted(sequence)
    assert len(sequence) == len(kept)


def test_a_process_that_stands_still_inside_a_transaction_does_not_block_the_others(
    store: Store, open_again: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_multicluster_scheduler.store.postgres.database.IDLE_TIMEOUT_S", "0.5")
    slow = open_again()

    def write_slowly() -> None:
        with slow._database.write() as tx:
            store.jobs.add([("job", a_spec())], now=NOW)
            tx.exec_driver_sql("SELECT 1")

    with pytest.raises(StoreBusy):
        write_slowly()
    assert store.jobs.get("job").submission_id == "job"
    slow.close()


def test_a_schema_of_somebody_else_is_left_alone(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url().partition("?")[0], autocommit=True) as connection:
        connection.execute("CREATE SCHEMA theirs; CREATE TABLE theirs.jobs (id int)")
    with pytest.raises(ForeignStore, match="schema=NAME"):
        open_postgres_store(postgres_address(postgres.url("theirs")))


def test_a_store_that_is_not_there_is_not_made_for_a_look(postgres: PostgresServer) -> None:
    with pytest.raises(StoreError, match="there is no job store"):
        open_postgres_store(postgres_address(postgres.url("nowhere")), create=False)


def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret")
    address = postgres_address(
        "postgresql://ann@127.0.0.1:9/jobs?connect_timeout=2", password_file=tmp_path / "password"
    )
    with pytest.raises(StoreBusy) as refused:
        open_postgres_store(address)
    assert "ann@127.0.0.1:9/jobs" in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(address)


def test_a_password_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret\n")
    address = postgres_address("postgresql://ann@db/jobs", password_file=tmp_path / "password")
    assert "password=s3cret" in address.connection_string
    assert "s3cret" not in str(address)
    with pytest.raises(StoreError, match="missing"):
        postgres_address("postgresql://ann@db/jobs", password_file=tmp_path / "missing")


def test_a_password_may_have_any_characters(postgres: PostgresServer, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a b+c%20'\\\"@:/?#&\u00e9\n")
    address = postgres_address(postgres.url("any_password"), password_file=tmp_path / "password")
    assert conninfo_to_dict(address.connection_string)["password"] == "a b+c%20'\\\"@:/?#&\u00e9"
    open_postgres_store(address).close()


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o444, 0o644])
def test_a_password_file_may_be_one_that_others_can_read(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Docker and Kubernetes mount it so, in a directory or a container of its own. One's own is warned of."""
    (tmp_path / "password").write_text("s3cret\n")
    (tmp_path / "password").chmod(mode)
    address = postgres_address("postgresql://ann@db/jobs", password_file=tmp_path / "password")
    assert "password=s3cret" in address.connection_string
    told = [record.message for record in caplog.records]
    assert [message.endswith(f"chmod 600 {tmp_path}/password") for message in told] == [True] * bool(
        mode & 0o077
    )


@pytest.mark.parametrize(
    "text", ["postgresql://", "mysql://db/jobs", "postgresql://db", "what", "postgresql://h:x/d"]
)
def test_an_address_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(StoreError, match="postgresql://user@host:5432/database"):
        postgres_address(text)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(StoreError, match="store_password_file") as refused:
        postgres_address("postgresql://ann:s3cret@db/jobs")
    assert "s3cret" not in str(refused.value)


def test_a_schema_that_would_need_quotes_is_refused() -> None:
    with pytest.raises(StoreError, match="small letters"):
        postgres_address("postgresql://db/jobs?schema=x;drop")


def test_times_are_told(store: Store) -> None:
    told: list[str] = []
    store.tell_times(lambda kind, _: told.append(kind))
    store.jobs.add([("job", a_spec())], now=NOW)
    store.jobs.get("job")
    assert told == ["commit", "write", "read"]
    assert isinstance(store._database, PostgresDatabase)


def test_an_ordinary_user_with_a_database_is_enough(postgres: PostgresServer) -> None:
    name = f"u{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres.url().partition("?")[0], autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN")
        connection.execute(f"CREATE DATABASE {name} OWNER {name}")
    url = postgres.url().replace("raymc@", f"{name}@").replace("/postgres?", f"/{name}?")
    store = open_postgres_store(postgres_address(url))
    lease = store.leases.acquire("one", ttl_s=30.0, now=NOW)
    store.jobs.add([("job", a_spec())], now=NOW)
    assert lease is not None
    assert store.jobs.get("job").submission_id == "job"
    assert store.changes.wait(0, timeout_s=PATIENCE_S) == 1
    store.close()
