"""Every store that a former version has made is brought up to date with all that is in it."""

import contextlib
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from tests.contract.store.recordings import FIRST, play_on_postgres, play_on_sqlite, recordings
from tests.support.builders import NOW, a_spec
from tests.support.newer_version import KNOW_IT, NEWER, newer_migrations

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.maintenance import broken_rules
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store, open_store
from ray_multicluster_scheduler.store.postgres.database import postgres_address
from ray_multicluster_scheduler.store.postgres.opening import open_postgres_store
from ray_multicluster_scheduler.store.schema import revision as schema_revision
from ray_multicluster_scheduler.store.schema.revision import MIGRATIONS, read_revision
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
KINDS = ("sqlite", "postgres")
ALL = [(kind, revision) for kind in KINDS for revision in recordings(kind)]

#: Makes a recorded store, or none (None), and returns what opens it.
Play = Callable[[str, str | None], Callable[[], Store]]


@pytest.fixture
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    def played(kind: str, revision: str | None) -> Callable[[], Store]:
        name = f"t{uuid.uuid4().hex[:12]}"
        if kind == "sqlite":
            directory = tmp_path / name
            if revision is not None:
                play_on_sqlite(directory, revision)
            return lambda: open_store(directory)
        address = postgres_address(request.getfixturevalue("postgres").url(name))
        if revision is not None:
            play_on_postgres(address, revision)
        return lambda: open_postgres_store(address)

    return played


def structure(store: Store) -> list[str]:
    """Return columns, indexes and constraints of a store, whatever its schema is called."""
    with store._database.read() as tx:
        if tx.dialect.name == "sqlite":
            texts = tx.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").scalars()
            found = sorted(
                str(sorted(" ".join(text.split()).removesuffix(" )").split(", CONSTRAINT ")))
                for text in texts
            )
        else:
            schema = tx.exec_driver_sql("SELECT current_schema()").scalar_one()
            rows = [
                tuple(row) for text in (_COLUMNS, _INDEXES, _CONSTRAINTS) for row in tx.exec_driver_sql(text)
            ]
            found = [str(row).replace(f"{schema}.", "") for row in rows]
    return [row for row in found if "alembic_version" not in row]


def assert_all_is_there(store: Store) -> None:
    """Compare a store with what `fill` has written."""
    for state in (JobState.QUEUED, JobState.RUNNING, JobState.LOST, JobState.SUCCEEDED):
        job = store.jobs.get(f"is-{state.value}")
        assert (job.state, job.spec.tags) == (state, ("ü", "b"))
    assert [job.submission_id for job in store.jobs.list(name="nightly")] == ["waits"]
    assert store.history.load_log("is-SUBMITTED") == "line\n" * 10
    package = store.packages.find("_ray_pkg_1.zip")
    assert package is not None
    assert store.packages.read_chunk(package.id, 1) == bytes([1, 0, 255]) * 100
    assert [token.id for token in store.access.tokens()] == ["t1"]
    with store._database.read() as tx:
        assert broken_rules(tx) == []
    last = store.history.last_event()
    (job,) = store.jobs.add([("later", a_spec())], now=NOW)
    assert job.seq > max(each.seq for each in store.jobs.list() if each.submission_id != "later")
    assert store.history.last_event() > last


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let this process have one more migration; return its script."""
    migrations = newer_migrations(tmp_path)
    monkeypatch.setattr(schema_revision, "MIGRATIONS", migrations)
    for module in KNOW_IT:
        monkeypatch.setattr(module, "REVISION", NEWER)
    (script,) = (migrations / "versions").glob("r9999*")
    return script


@pytest.mark.parametrize("kind", KINDS)
def test_every_revision_that_a_store_can_have_is_recorded(kind: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    chain = [each.revision for each in ScriptDirectory.from_config(config).walk_revisions()][::-1]
    assert chain[0] == FIRST
    assert list(recordings(kind)) == chain, "record it: python -m tests.contract.store.recordings"


@pytest.mark.parametrize(("kind", "revision"), ALL)
def test_a_recorded_store_is_brought_up_to_date_with_everything_in_it(
    play: Play, kind: str, revision: str
) -> None:
    with contextlib.closing(play(kind, revision)()) as store, contextlib.closing(play(kind, None)()) as new:
        with store._database.read() as tx:
            assert read_revision(tx) == REVISION
        assert structure(store) == structure(new)
        assert_all_is_there(store)


@pytest.mark.parametrize(("kind", "revision"), ALL)
def test_the_next_migration_would_find_it_too(play: Play, newer: Path, kind: str, revision: str) -> None:
    with contextlib.closing(play(kind, revision)()) as store:
        with store._database.read() as tx:
            assert read_revision(tx) == NEWER
            assert set(tx.exec_driver_sql("SELECT colour FROM jobs").scalars()) == {"green"}
        assert_all_is_there(store)


@pytest.mark.parametrize("kind", KINDS)
def test_a_migration_that_fails_changes_nothing(
    play: Play, newer: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    open_it = play(kind, FIRST)
    newer.write_text(newer.read_text() + '    raise RuntimeError("half way")\n')
    with pytest.raises(RuntimeError, match="half way"):
        open_it()
    monkeypatch.undo()
    with contextlib.closing(open_it()) as store:
        assert_all_is_there(store)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_of_before_the_first_release_is_refused_with_what_to_do(play: Play, kind: str) -> None:
    open_it = play(kind, FIRST)
    with contextlib.closing(open_it()) as store, store._database.write() as tx:
        tx.exec_driver_sql("UPDATE alembic_version SET version_num = '0016_pre'")
    with pytest.raises(StoreError, match=r"before the first release .*Start with an empty store"):
        open_it()


def test_the_declared_revision_is_the_last_migration_and_names_say_pre_or_post() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    script = ScriptDirectory.from_config(config)

    assert script.get_current_head() == REVISION
    assert all(found.revision.endswith(("_pre", "_post")) for found in script.walk_revisions())
