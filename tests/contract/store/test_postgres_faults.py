"""What a server, a network, a signal or a fork can do to a store on PostgreSQL at the worst moment."""

import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import errors as codes
from tests.contract.store.conftest import OpenStore, opener
from tests.support.builders import NOW, a_spec
from tests.support.postgres import PostgresServer
from tests.support.waiting import PATIENCE_S, until

from ray_multicluster_scheduler.errors import StoreBusy, StoreError
from ray_multicluster_scheduler.store import Store
from ray_multicluster_scheduler.store.postgres.database import postgres_address, translated
from ray_multicluster_scheduler.store.postgres.opening import open_postgres_store

resource = pytest.importorskip("resource", reason="NOT TESTED: this system has no limits on files")
FOR_EVER = 3600.0
#: `select` cannot wait for files with larger numbers.
SELECT_LIMIT = 1024
MANY = 8


@pytest.fixture
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
    return opener(request, "postgres", tmp_path)


@pytest.fixture
def store(open_again: OpenStore) -> Iterator[Store]:
    opened = open_again()
    yield opened
    opened.close()


@pytest.fixture
def other(open_again: OpenStore, store: Store) -> Iterator[Store]:
    opened = open_again()
    yield opened
    opened.close()


@contextmanager
def administrator(postgres: PostgresServer) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    with psycopg.connect(postgres.url().partition("?")[0], autocommit=True) as connection:
        yield connection


def cut_all(postgres: PostgresServer) -> None:
    """End all other connections, as an administrator or a failover does."""
    with administrator(postgres) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


def connections(postgres: PostgresServer) -> int:
    with administrator(postgres) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchone()
    assert found is not None
    return int(str(found[0]))


# -- errors that pass


@pytest.mark.parametrize(
    "error",
    [
        codes.AdminShutdown,
        codes.CrashShutdown,
        codes.CannotConnectNow,
        codes.TooManyConnections,
        codes.ReadOnlySqlTransaction,
        codes.IdleInTransactionSessionTimeout,
        codes.IdleSessionTimeout,
        codes.TransactionTimeout,
        codes.QueryCanceled,
        codes.ConnectionFailure,
        codes.ProtocolViolation,
        codes.OutOfMemory,
        codes.DiskFull,
        codes.IoError,
        codes.DeadlockDetected,
        codes.SerializationFailure,
        codes.ObjectInUse,
    ],
    ids=lambda error: error.__name__,
)
def test_what_passes_does_not_end_the_engine(error: type[psycopg.Error]) -> None:
    """It goes on after `StoreBusy`, and only after that."""
    with pytest.raises(StoreBusy), translated("here"):
        raise error("as the server says it")


def test_a_server_that_became_a_standby_is_one_to_wait_for(store: Store, postgres: PostgresServer) -> None:
    lease = store.leases.acquire("one", ttl_s=30.0, now=NOW)
    assert lease is not None
    with administrator(postgres) as connection:
        connection.execute("ALTER ROLE raymc SET default_transaction_read_only = on")
    try:
        cut_all(postgres)
        until(lambda: _reads(store))
        with pytest.raises(StoreBusy, match="standby, or read-only"):
            store.jobs.add([("job", a_spec())], now=NOW)
        with pytest.raises(StoreBusy):
            store.leases.renew(lease, ttl_s=30.0, now=NOW)
    finally:
        with administrator(postgres) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute("ALTER ROLE raymc RESET default_transaction_read_only")
    cut_all(postgres)
    until(lambda: _reads(store))
    assert store.jobs.add([("job", a_spec())], now=NOW)


def _reads(store: Store) -> bool:
    with suppress(StoreBusy):
        store.history.last_event()
        return True
    return False


def test_connections_that_the_server_has_cut_are_busy_and_never_worse(
    store: Store, postgres: PostgresServer
) -> None:
    def cut_in_the_middle() -> None:
        with store._database.write() as tx:
            cut_all(postgres)
            tx.exec_driver_sql("SELECT 1")

    for _ in range(3):
        with pytest.raises(StoreBusy):
            cut_in_the_middle()
        until(lambda: _reads(store))
    assert store.jobs.add([("job", a_spec())], now=NOW)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["lost first", "lost last"])
def test_of_several_hosts_the_one_that_can_be_written_is_used(
    postgres: PostgresServer, order: tuple[int, int]
) -> None:
    """As after a failover: nobody has to change the address."""
    ports = [(9, postgres.port)[each] for each in order]
    hosts = "&".join(f"host=127.0.0.1&port={port}" for port in ports)
    address = postgres_address(
        f"postgresql://raymc@/postgres?schema=t{uuid.uuid4().hex[:12]}&{hosts}&target_session_attrs=read-write"
    )
    store = open_postgres_store(address)
    assert store.jobs.add([("job", a_spec())], now=NOW)
    store.close()


# -- connections


def test_no_connection_is_left_behind(open_again: OpenStore, postgres: PostgresServer) -> None:
    open_again().close()
    before = connections(postgres)
    store = open_again()
    store.changes.wait(0, timeout_s=0.0)
    with ThreadPoolExecutor(MANY) as pool:
        list(pool.map(lambda n: store.jobs.add([(f"job-{n}", a_spec())], now=NOW), range(4 * MANY)))
    with pytest.raises(ZeroDivisionError), store._database.write():
        _ = 1 / 0
    with pytest.raises(ZeroDivisionError), store._database.read():
        _ = 1 / 0
    store.close()
    until(lambda: connections(postgres) <= before)


def test_many_that_open_a_new_store_at_once_all_get_it(postgres: PostgresServer) -> None:
    for _ in range(5):
        address = postgres_address(postgres.url(f"t{uuid.uuid4().hex[:12]}"))
        together = threading.Barrier(MANY)

        def opened() -> Store:
            together.wait(PATIENCE_S)  # noqa: B023
            return open_postgres_store(address)  # noqa: B023

        with ThreadPoolExecutor(MANY) as pool:
            stores = [each.result() for each in [pool.submit(opened) for _ in range(MANY)]]
        assert len({store.store_id for store in stores}) == 1
        for store in stores:
            store.close()


# -- notifications


def test_changes_are_noticed_in_a_process_with_many_open_files(store: Store, other: Store) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * SELECT_LIMIT:
        pytest.skip("NOT TESTED: this process may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SELECT_LIMIT), hard))
    with ExitStack() as files:
        while files.enter_context(socket.socket()).fileno() < SELECT_LIMIT:
            pass
        seen = store.changes.wait(0, timeout_s=0.0)
        other.jobs.add([("job", a_spec())], now=NOW)
        assert store.changes.wait(seen, timeout_s=PATIENCE_S) > seen
        seen = store.changes.wait(0, timeout_s=0.0)
        waits = threading.Thread(target=store.changes.wait, args=(seen,), kwargs={"timeout_s": PATIENCE_S})
        waits.start()
        other.jobs.add([("another", a_spec())], now=NOW)
        waits.join()
        (listening,) = [each for each in threading.enumerate() if each.name == "raymc-notifications"]
        assert listening.is_alive()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_changes_are_noticed_again_after_the_listening_connection_was_cut(
    store: Store, other: Store, postgres: PostgresServer
) -> None:
    for number in range(2):
        seen = store.changes.wait(0, timeout_s=0.0)
        cut_all(postgres)
        until(lambda: _reads(other))
        until(lambda: _reads(store))
        other.jobs.add([(f"job-{number}", a_spec())], now=NOW)
        assert store.changes.wait(seen, timeout_s=FOR_EVER) > seen


# -- signals and forks


@contextmanager
def interrupted_while(waits: Callable[[], bool]) -> Iterator[None]:
    """Send this process a Ctrl-C once something holds; the block must be interrupted by it."""

    def send() -> None:
        until(waits)
        time.sleep(0.1)  # not a bound: it may have to begin to wait
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        sender.join()


def test_an_interrupt_while_another_process_writes_leaves_nothing_locked(
    store: Store, other: Store, postgres: PostgresServer
) -> None:
    def one_waits_for_the_lock() -> bool:
        with administrator(postgres) as connection:
            row = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
        return row is not None and row[0] == 1

    with other._database.write(), interrupted_while(one_waits_for_the_lock):
        store.jobs.add([("interrupted", a_spec())], now=NOW)
    assert store.jobs.add([("after", a_spec())], now=NOW)
    assert other.jobs.add([("elsewhere", a_spec())], now=NOW)


def test_an_interrupt_inside_a_write_undoes_it(store: Store, other: Store) -> None:
    def write() -> None:
        with store._database.write() as tx:
            tx.exec_driver_sql("UPDATE jobs SET reason = 'half done'")
            raise KeyboardInterrupt

    store.jobs.add([("before", a_spec())], now=NOW)
    with pytest.raises(KeyboardInterrupt):
        write()
    assert other.jobs.get("before").reason != "half done"
    assert other.jobs.add([("job", a_spec())], now=NOW)
    assert store.jobs.add([("other", a_spec())], now=NOW)


def test_a_child_that_is_forked_during_a_write_can_write(store: Store, other: Store) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def write_slowly() -> None:
        with store._database.write():
            inside.set()
            go_on.wait(PATIENCE_S)

    slow = threading.Thread(target=write_slowly)
    slow.start()
    assert inside.wait(PATIENCE_S)
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):
            signal.alarm(int(PATIENCE_S) // 2)
            store.clusters.set_drained("a", drained=True, reason="by the child", now=NOW)
            code = 0
        os._exit(code)
    go_on.set()
    slow.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert other.clusters.drained()["a"].reason == "by the child"
    assert store.clusters.drained() == other.clusters.drained(), "the connections of the parent still work"


# -- secrets


@pytest.mark.parametrize(
    "url", ["postgresql://ann@db/jobs?password=s3cret", "postgresql://ann@db/jobs?sslpassword=s3cret"]
)
def test_a_password_elsewhere_in_the_address_is_refused_too(url: str) -> None:
    with pytest.raises(StoreError, match="store_password_file") as refused:
        postgres_address(url)
    assert "s3cret" not in str(refused.value)


def test_a_password_file_that_is_no_text_is_refused_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"s3cret\xff")
    with pytest.raises(StoreError, match="no text") as refused:
        postgres_address("postgresql://ann@db/jobs", password_file=tmp_path / "password")
    assert refused.value.__cause__ is None
    assert "s3cret" not in str(refused.value)


def test_an_error_does_not_carry_the_row_that_it_is_about(store: Store) -> None:
    """A traceback shows the causes of an error, and a row may hold the environment of a job."""

    def violate() -> None:
        with store._database.write() as tx:
            tx.exec_driver_sql("CREATE TEMP TABLE secrets (a text, b text NOT NULL)")
            tx.exec_driver_sql("INSERT INTO pg_temp.secrets VALUES (%s, NULL)", ("s3cret",))

    with pytest.raises(StoreError) as raised:
        violate()
    problem: BaseException | None = raised.value
    while problem is not None:
        assert "s3cret" not in str(problem)
        problem = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)
