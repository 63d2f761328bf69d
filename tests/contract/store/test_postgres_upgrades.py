"""Every store that a former version has made on PostgreSQL is brought up to date with all that is in it.

On SQLite, `tests/integration/test_store_files.py` begins with the first schema.
"""

import contextlib
import uuid
from pathlib import Path

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from tests.builders import NOW, a_spec
from tests.contract.store.postgres_recordings import FIRST, play, recordings
from tests.integration.newer_version import KNOW_IT, NEWER, newer_migrations
from tests.postgres_server import PostgresServer

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import SqlStore
from ray_multicluster_scheduler.store.operations.invariants import broken_rules
from ray_multicluster_scheduler.store.postgres.open_postgres import open_postgres_store
from ray_multicluster_scheduler.store.postgres.postgres_url import PostgresAddress, postgres_address
from ray_multicluster_scheduler.store.schema import migrate
from ray_multicluster_scheduler.store.schema.revision import read_revision
from ray_multicluster_scheduler.store.schema.tables import REVISION

_COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
WHERE table_schema = current_schema() ORDER BY 1, 2
"""
_INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1"
_CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = current_schema()::regnamespace AND contype <> 'n'
ORDER BY 1, 2
"""


def address_in(server: PostgresServer) -> PostgresAddress:
    return postgres_address(server.url(f"t{uuid.uuid4().hex[:12]}"))


def structure(store: SqlStore, schema: str) -> list[str]:
    """Return columns, indexes and constraints of a store, whatever its schema is called."""
    with store._database.read() as tx:
        rows = [tuple(row) for text in (_COLUMNS, _INDEXES, _CONSTRAINTS) for row in tx.exec_driver_sql(text)]
    found = [str(row).replace(f"{schema}.", "") for row in rows]
    return [row for row in found if "alembic_version" not in row]


def assert_all_is_there(store: SqlStore) -> None:
    """Compare a store with what `fill` has written."""
    for state in (JobState.QUEUED, JobState.RUNNING, JobState.LOST, JobState.SUCCEEDED):
        job = store.get(f"is-{state.value}")
        assert (job.state, job.spec.tags) == (state, ("ü", "b"))
    assert [job.submission_id for job in store.list_jobs(name="nightly")] == ["waits"]
    assert store.load_log("is-SUBMITTED") == "line\n" * 10
    package = store.packages.find("_ray_pkg_1.zip")
    assert package is not None
    assert store.packages.read_chunk(package.id, 1) == bytes([1, 0, 255]) * 100
    assert [token.id for token in store.access.tokens()] == ["t1"]
    with store._database.read() as tx:
        assert broken_rules(tx) == []
    last = store.last_event()
    (job,) = store.add([("later", a_spec())], now=NOW)
    assert job.seq > max(each.seq for each in store.list_jobs() if each.submission_id != "later")
    assert store.last_event() > last


def test_every_revision_that_a_store_on_postgresql_can_have_is_recorded() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrate.MIGRATIONS))
    chain = [each.revision for each in ScriptDirectory.from_config(config).walk_revisions()][::-1]
    wanted = chain[chain.index(FIRST) :]
    assert list(recordings()) == wanted, "record it: python -m tests.contract.store.postgres_recordings"


@pytest.mark.parametrize("revision", recordings())
def test_a_recorded_store_is_brought_up_to_date_with_everything_in_it(
    postgres: PostgresServer, revision: str
) -> None:
    recorded, fresh = address_in(postgres), address_in(postgres)
    play(recorded, recordings()[revision])
    with (
        contextlib.closing(open_postgres_store(recorded)) as store,
        contextlib.closing(open_postgres_store(fresh)) as new,
    ):
        with store._database.read() as tx:
            assert read_revision(tx) == REVISION
        assert structure(store, recorded.schema) == structure(new, fresh.schema)
        assert_all_is_there(store)


def test_the_jobs_of_a_group_of_before_are_listed_under_the_first_of_it(postgres: PostgresServer) -> None:
    address = address_in(postgres)
    play(address, recordings()["0013_pre"])
    with psycopg.connect(address.connection_string) as connection:
        connection.execute(f"SET LOCAL search_path = {address.schema}")
        for submission_id, user in (("is-QUEUED", "bob"), ("is-FAILED", "ann"), ("session", "ann")):
            connection.execute(
                'UPDATE jobs SET "group" = %s, "user" = %s WHERE submission_id = %s',
                ["g", user, submission_id],
            )
    with contextlib.closing(open_postgres_store(address)) as store:
        heads = {job.submission_id: job.head for job in store.list_jobs(group="g")}
        assert heads == {"session": "is-FAILED", "waits": "is-FAILED", "is-FAILED": None, "is-QUEUED": None}


@pytest.mark.parametrize("revision", recordings())
def test_the_next_migration_would_find_it_too(
    postgres: PostgresServer, revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = address_in(postgres)
    play(recorded, recordings()[revision])
    monkeypatch.setattr(migrate, "MIGRATIONS", newer_migrations(tmp_path))
    for module in KNOW_IT:
        monkeypatch.setattr(module, "REVISION", NEWER)
    with contextlib.closing(open_postgres_store(recorded)) as store:
        with store._database.read() as tx:
            assert read_revision(tx) == NEWER
            assert set(tx.exec_driver_sql("SELECT colour FROM jobs").scalars()) == {"green"}
        assert_all_is_there(store)


def test_a_migration_that_fails_changes_nothing(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = address_in(postgres)
    play(address, recordings()[FIRST])
    migrations = newer_migrations(tmp_path)
    (script,) = (migrations / "versions").glob("r9999*")
    script.write_text(script.read_text() + '    raise RuntimeError("half way")\n')
    with monkeypatch.context() as newer:
        newer.setattr(migrate, "MIGRATIONS", migrations)
        for module in KNOW_IT:
            newer.setattr(module, "REVISION", NEWER)
        with pytest.raises(RuntimeError, match="half way"):
            open_postgres_store(address)
    with contextlib.closing(open_postgres_store(address)) as store:
        assert_all_is_there(store)
