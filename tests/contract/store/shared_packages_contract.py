"""What every shared place for packages does. A subclass provides the fixture `shared`."""

import hashlib
import io
import os
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.packages.shared_packages import HALF_WRITTEN_S, NOTED_EVERY_S, SharedPackages
from ray_multicluster_scheduler.packages.store import KEEP_S, PackageStore

NAME = "_ray_pkg_0123456789abcdef.zip"
NO_NAMES = ["", "..", "../x.zip", "a/b.zip", ".tmp-1.zip", "x.txt", "x.zip\n", "used", "\0.zip"]


class Interrupted(Exception):
    """Stands for whatever ends a writer."""


class BrokenPath(type(Path())):  # type: ignore[misc]
    """A file that can be read only up to a point."""

    @contextmanager
    def open(self, *_: Any, **__: Any) -> Iterator[IO[bytes]]:
        class Broken(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                if self.tell() >= 2 * 2**20:
                    raise Interrupted
                return super().read(size)

        yield Broken(bytes(3 * 2**20))


def a_file(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / f"source-{hashlib.sha256(content).hexdigest()[:8]}"
    path.write_bytes(content)
    return path


def fetched(shared: SharedPackages, name: str) -> bytes | None:
    into = io.BytesIO()
    return into.getvalue() if shared.fetch(name, into) else None


def a_machine(tmp_path: Path, name: str, shared: SharedPackages | None, clock: ManualClock) -> PackageStore:
    return PackageStore(tmp_path / name / "packages", shared=shared, now=clock.now)


def packed(machine: PackageStore, content: bytes = b"code") -> str:
    with machine.receive() as file:
        file.write(content)
        return machine.keep(file, NAME).name


class SharedPackagesContract:
    """The tests of one place, and of machines that share packages there."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    # The place itself

    @pytest.mark.parametrize("size", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20])
    def test_what_was_put_is_fetched(self, shared: SharedPackages, tmp_path: Path, size: int) -> None:
        content = os.urandom(size)
        shared.put(NAME, a_file(tmp_path, content))
        assert fetched(shared, NAME) == content

    def test_what_was_never_put_is_not_there(self, shared: SharedPackages) -> None:
        assert fetched(shared, NAME) is None
        assert not shared.touch(NAME)
        assert not shared.remove(NAME, unused_for_s=0.0)
        assert shared.last_used() == {}
        shared.remove_leftovers()

    def test_a_package_that_is_there_is_not_written_again(
        self, shared: SharedPackages, tmp_path: Path
    ) -> None:
        shared.put(NAME, a_file(tmp_path, b"one"))
        shared.put(NAME, a_file(tmp_path, b"two"))
        assert fetched(shared, NAME) == b"one"

    @pytest.mark.parametrize("name", NO_NAMES)
    def test_what_is_no_name_is_refused_and_unknown(
        self, shared: SharedPackages, tmp_path: Path, name: str
    ) -> None:
        with pytest.raises(InvalidRequest, match="is not the name of a package"):
            shared.put(name, a_file(tmp_path, b"one"))
        assert fetched(shared, name) is None
        assert not shared.touch(name)
        assert not shared.remove(name, unused_for_s=0.0)

    def test_uses_are_noted_but_not_each_of_them(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        shared.put(NAME, a_file(tmp_path, b"one"))
        put_at = clock.now()
        assert shared.last_used() == {NAME: put_at}
        clock.advance(NOTED_EVERY_S - 1)
        assert shared.touch(NAME)
        assert shared.last_used() == {NAME: put_at}
        clock.advance(1)
        assert shared.touch(NAME)
        assert shared.last_used() == {NAME: clock.now()}

    def test_only_what_was_not_used_for_long_is_removed(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        shared.put(NAME, a_file(tmp_path, b"one"))
        clock.advance(5000)
        assert not shared.remove(NAME, unused_for_s=6000)
        assert fetched(shared, NAME) == b"one"
        assert shared.remove(NAME, unused_for_s=4000)
        assert fetched(shared, NAME) is None
        assert not shared.remove(NAME, unused_for_s=0.0)

    def test_a_removed_package_can_be_put_again(self, shared: SharedPackages, tmp_path: Path) -> None:
        shared.put(NAME, a_file(tmp_path, b"one"))
        assert shared.remove(NAME, unused_for_s=0.0)
        shared.put(NAME, a_file(tmp_path, b"two"))
        assert fetched(shared, NAME) == b"two"

    def test_an_interrupted_writer_leaves_nothing_that_is_seen(
        self, shared: SharedPackages, tmp_path: Path
    ) -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - each place has its own way to say it
            shared.put(NAME, BrokenPath("anywhere"))
        assert isinstance(caught.value, Interrupted) or isinstance(caught.value.__cause__, Interrupted)
        assert fetched(shared, NAME) is None
        assert shared.last_used() == {}
        assert self.leftovers(shared) == 0
        shared.put(NAME, a_file(tmp_path, b"one"))
        assert fetched(shared, NAME) == b"one"

    def test_what_a_killed_writer_has_left_goes_after_a_day(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        self.begin_and_stop(shared)
        shared.put(NAME, a_file(tmp_path, b"one"))
        clock.advance(HALF_WRITTEN_S - 1)
        shared.remove_leftovers()
        assert self.leftovers(shared) == 1
        clock.advance(2)
        shared.remove_leftovers()
        assert self.leftovers(shared) == 0
        assert fetched(shared, NAME) == b"one"

    def test_many_writers_of_one_package_at_once_agree(self, shared: SharedPackages, tmp_path: Path) -> None:
        content = os.urandom(2**20 + 5)
        source, failures = a_file(tmp_path, content), []
        start = threading.Barrier(4)

        def put() -> None:
            start.wait()
            try:
                shared.put(NAME, source)
            except Exception as problem:  # noqa: BLE001 - whatever it is, the test is to show it
                failures.append(problem)

        threads = [threading.Thread(target=put) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert list(shared.last_used()) == [NAME]
        assert fetched(shared, NAME) == content
        assert self.leftovers(shared) == 0

    def leftovers(self, shared: SharedPackages) -> int:
        """How many unfinished packages take up space."""
        raise NotImplementedError

    def begin_and_stop(self, shared: SharedPackages) -> None:
        """Leave behind what a writer leaves that is killed in the middle."""
        raise NotImplementedError

    # Machines that share packages

    def test_another_machine_has_what_one_has_packed(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        a, b = (a_machine(tmp_path, name, shared, clock) for name in "ab")
        name = packed(a)
        assert b.ask_for(name)
        path = b.path(name)
        assert path is not None
        assert path.read_bytes() == b"code"
        assert path.is_relative_to(tmp_path / "b")

    def test_asking_for_a_package_does_not_copy_it(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        a, b = (a_machine(tmp_path, name, shared, clock) for name in "ab")
        name = packed(a)
        assert b.ask_for(name)
        assert not (tmp_path / "b" / "packages" / name).exists()

    def test_a_package_whose_content_is_not_what_its_name_says_is_not_used(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        a, b = (a_machine(tmp_path, name, shared, clock) for name in "ab")
        name = packed(a)
        shared.remove(name, unused_for_s=0.0)
        shared.put(name, a_file(tmp_path, b"something else"))

        assert b.path(name) is None
        assert not (tmp_path / "b" / "packages" / name).exists()
        assert a.ask_for(name), "the machine that has the right one shares it again"
        path = b.path(name)
        assert path is not None
        assert path.read_bytes() == b"code"

    def test_what_was_packed_before_it_could_be_shared_is_shared_when_it_is_needed(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        alone = a_machine(tmp_path, "a", None, clock)
        needed, unneeded = packed(alone, b"needed"), packed(alone, b"unneeded")
        a, b = (a_machine(tmp_path, name, shared, clock) for name in "ab")
        assert b.path(needed) is None
        assert a.may_collect(for_s=3600)
        assert a.collect([needed], older_than_s=KEEP_S) == ()
        assert b.path(needed) is not None
        assert b.path(unneeded) is None
        assert alone.path(unneeded) is not None

    def test_what_open_jobs_need_stays_and_the_rest_goes(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        a, b = (a_machine(tmp_path, name, shared, clock) for name in "ab")
        needed, unneeded = packed(b, b"needed"), packed(b, b"unneeded")
        assert not a.may_collect(for_s=3600)
        clock.advance(KEEP_S + 1)
        assert a.may_collect(for_s=3600)
        assert a.collect([needed], older_than_s=KEEP_S) == (unneeded,)
        assert list(shared.last_used()) == [needed]
        assert a.path(needed) is not None

    def test_a_cache_loses_what_was_not_used_for_long_and_fetches_it_again(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        a, b = (a_machine(tmp_path, name, shared, clock) for name in "ab")
        old = packed(a, b"old")
        assert b.path(old) is not None
        os.utime(tmp_path / "b" / "packages" / old, (clock.now() - KEEP_S - 1,) * 2)
        clock.advance(3601)
        packed(b, b"new")
        assert not (tmp_path / "b" / "packages" / old).exists()
        assert b.path(old) is not None

    def test_a_cache_keeps_the_only_copy(
        self, shared: SharedPackages, tmp_path: Path, clock: ManualClock
    ) -> None:
        alone = a_machine(tmp_path, "a", None, clock)
        only = packed(alone, b"only here")
        clock.advance(KEEP_S + 1)
        a = a_machine(tmp_path, "a", shared, clock)
        packed(a, b"new")
        assert (tmp_path / "a" / "packages" / only).exists()


def assert_little_memory_is_used(shared: SharedPackages, tmp_path: Path) -> None:
    """Put and fetch a package of the largest size that Ray takes."""
    size = 100 * 2**20
    source, target = tmp_path / "large", tmp_path / "copy"
    with source.open("wb") as file:
        file.truncate(size)
    tracemalloc.start()
    try:
        shared.put(NAME, source)
        with target.open("wb") as file:
            assert shared.fetch(NAME, file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert target.stat().st_size == size
    assert most < 16 * 2**20
