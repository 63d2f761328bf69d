"""Every place where schedulers share packages does the same."""

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from fsspec.registry import known_implementations
from tests.contract.store.shared_packages_contract import (
    NAME,
    SharedPackagesContract,
    a_file,
    assert_little_memory_is_used,
    fetched,
)
from tests.support.builders import NOW
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.errors import InvalidRequest, StoreError
from ray_multicluster_scheduler.packages.shared_packages import (
    DatabasePackages,
    FsspecPackages,
    SharedPackages,
)
from ray_multicluster_scheduler.store import Store
from ray_multicluster_scheduler.store.packages import stored_bytes


class TestInTheDatabase(SharedPackagesContract):
    @pytest.fixture
    def shared(self, store: Store, clock: ManualClock) -> SharedPackages:
        return DatabasePackages(store.packages, now=clock.now)

    def leftovers(self, shared: SharedPackages) -> int:
        assert isinstance(shared, DatabasePackages)
        chunks = shared._chunks
        with chunks._transactions.read() as tx:
            total: int = tx.exec_driver_sql("SELECT count(*) FROM packages WHERE name IS NULL").scalar_one()
            stray: int = tx.exec_driver_sql(
                "SELECT count(*) FROM package_chunks WHERE package_id NOT IN (SELECT id FROM packages)"
            ).scalar_one()
        assert stray == 0
        return total

    def begin_and_stop(self, shared: SharedPackages) -> None:
        assert isinstance(shared, DatabasePackages)
        package = shared._chunks.begin(now=shared._now())
        for _ in range(20):
            shared._chunks.append(package, b"some", now=shared._now())

    def test_the_largest_package_needs_little_memory(self, shared: SharedPackages, tmp_path: Path) -> None:
        assert_little_memory_is_used(shared, tmp_path)

    def test_the_first_of_two_writers_wins(self, store: Store) -> None:
        chunks = store.packages
        first, second = chunks.begin(now=NOW), chunks.begin(now=NOW)
        chunks.append(first, b"first", now=NOW)
        chunks.append(second, b"second", now=NOW)
        chunks.finish(second, NAME, now=NOW)
        chunks.finish(first, NAME, now=NOW + 1)
        found = chunks.find(NAME)
        assert found is not None
        assert (found.id, found.size, found.used_at) == (second, 6, NOW + 1)
        assert chunks.discard(unused_since=0.0, limit=8)
        assert not chunks.discard(unused_since=0.0, limit=8)
        assert chunks.read_chunk(first, 0) is None
        assert chunks.read_chunk(second, 0) == b"second"

    def test_a_writer_whose_begin_was_discarded_is_told(self, store: Store) -> None:
        package = store.packages.begin(now=NOW)
        while store.packages.discard(unused_since=NOW, limit=8):
            pass
        with pytest.raises(StoreError, match="try again"):
            store.packages.append(package, b"more", now=NOW)
        with pytest.raises(StoreError, match="try again"):
            store.packages.finish(package, NAME, now=NOW)

    def test_a_reader_of_a_package_that_is_removed_meanwhile_does_not_get_a_part_of_it(
        self, store: Store, shared: SharedPackages, tmp_path: Path
    ) -> None:
        shared.put(NAME, a_file(tmp_path, bytes(2**20 + 1)))

        class Removing:
            """A file. As soon as something is written to it, the package is removed."""

            def write(self, content: bytes) -> None:
                shared.remove(NAME, unused_for_s=0.0)

        assert shared.fetch(NAME, Removing()) is False  # type: ignore[arg-type]

    def test_packages_do_not_count_as_history(
        self, store: Store, shared: SharedPackages, tmp_path: Path
    ) -> None:
        with store._transactions.read() as tx:
            before = store.retention._history_bytes(tx)
        shared.put(NAME, a_file(tmp_path, bytes(5 * 2**20)))
        with store._transactions.read() as tx:
            assert stored_bytes(tx) == 5 * 2**20
            assert store.retention._history_bytes(tx) - before < 2**19


class TestAtAUrl(SharedPackagesContract):
    @pytest.fixture(params=["file", "memory"])
    def shared(self, request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> SharedPackages:
        place = f"{tmp_path}/shared/packages" if request.param == "file" else f"/{uuid4().hex}/packages"
        return FsspecPackages(f"{request.param}://{place}", now=clock.now)

    def leftovers(self, shared: SharedPackages) -> int:
        assert isinstance(shared, FsspecPackages)
        return len([name for name in shared._list() if name.startswith(".tmp-")])

    def begin_and_stop(self, shared: SharedPackages) -> None:
        assert isinstance(shared, FsspecPackages)
        shared._fs.makedirs(shared._root, exist_ok=True)
        shared._fs.pipe_file(f"{shared._root}/.tmp-{int(shared._now())}-killed", b"some")

    def test_the_largest_package_needs_little_memory(self, tmp_path: Path) -> None:
        assert_little_memory_is_used(FsspecPackages(f"file://{tmp_path}/shared"), tmp_path)

    def test_a_package_without_a_time_of_use_counts_from_now(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        assert isinstance(shared, FsspecPackages)
        shared.put(NAME, a_file(tmp_path, b"one"))
        shared._fs.pipe_file(f"{shared._root}/used/{NAME}", b"")
        clock.advance(5000)
        assert shared.last_used() == {NAME: clock.now()}
        assert not shared.remove(NAME, unused_for_s=1000)

    def test_a_place_that_renames_to_no_taken_name_is_fine(
        self, shared: SharedPackages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert isinstance(shared, FsspecPackages)
        shared.put(NAME, a_file(tmp_path, b"one"))
        monkeypatch.setattr(shared, "touch", lambda _: False)  # nobody was there when this writer looked

        def refuse(*_: object) -> None:
            raise OSError("the name is taken")

        monkeypatch.setattr(shared._fs, "mv", refuse, raising=False)
        shared.put(NAME, a_file(tmp_path, b"one"))
        assert fetched(shared, NAME) == b"one"
        assert self.leftovers(shared) == 0

    def test_a_place_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a directory")
        shared = FsspecPackages(f"file://{tmp_path}/file/packages")
        with pytest.raises(StoreError, match=r"packages at file://.*check that this machine can read and"):
            shared.put(NAME, a_file(tmp_path, b"one"))

    @pytest.mark.parametrize("url", ["nothing://x/y", "abc+def://z"])
    def test_an_unknown_protocol_is_a_clear_error(self, url: str) -> None:
        with pytest.raises(InvalidRequest, match="may need a further Python package, as s3:// needs s3fs"):
            FsspecPackages(url)

    def test_a_missing_package_of_a_protocol_is_a_clear_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        known = {"class": "no_such_module.FileSystem", "err": "Install no_such_module"}
        monkeypatch.setitem(known_implementations, "rare", known)
        with pytest.raises(InvalidRequest, match="Install no_such_module"):
            FsspecPackages("rare://x/y")

    def test_without_fsspec_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        with pytest.raises(InvalidRequest, match=r"needs fsspec: pip install '.*\[packages\]'"):
            FsspecPackages("file:///x")


def test_fsspec_is_imported_only_where_it_is_used() -> None:
    code = (
        "import sys, ray_multicluster_scheduler.packages.shared_packages; "
        "assert not [name for name in sys.modules if name.split('.')[0] == 'fsspec']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
