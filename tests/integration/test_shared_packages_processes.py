"""Real processes that put packages into one shared place: all at once, and killed in the middle."""

import hashlib
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_multicluster_scheduler.packages.shared_packages import (
    HALF_WRITTEN_S,
    SharedPackages,
    shared_packages,
)
from ray_multicluster_scheduler.store import Store, open_store

NAME = "_ray_pkg_0123456789abcdef.zip"
WRITER = """
import signal, sys
from pathlib import Path
from ray_multicluster_scheduler.packages.shared_packages import shared_packages
from ray_multicluster_scheduler.store import open_store

class Slow(type(Path())):
    '''A file whose reader is stopped for ever after the first MiB.'''
    def open(self, *args, **kwargs):
        file = super().open(*args, **kwargs)
        read = file.read
        class File:
            def __enter__(self): return self
            def __exit__(self, *_): file.close()
            def read(self, size=-1):
                if file.tell() >= 2**20:
                    print("in the middle", flush=True)
                    signal.pause()
                return read(min(size, 2**20))
        return File()

store, place, source, kind = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
shared = shared_packages(place, open_store(store))
print("ready", flush=True)
sys.stdin.readline()
shared.put("_ray_pkg_0123456789abcdef.zip", Slow(source) if kind == "slow" else Path(source))
"""


@pytest.fixture(params=["database", "url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "database" if request.param == "database" else f"file://{tmp_path}/shared"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def shared(store: Store, place: str) -> SharedPackages:
    found = shared_packages(place, store)
    assert found is not None
    return found


def a_writer(tmp_path: Path, place: str, source: Path, kind: str) -> "subprocess.Popen[str]":
    """Start a process that is about to put a package."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "store"), place, str(source), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def begin(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def digest(shared: SharedPackages) -> str | None:
    into = io.BytesIO()
    return hashlib.sha256(into.getvalue()).hexdigest() if shared.fetch(NAME, into) else None


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(os.urandom(5 * 2**20))
    return path


def test_processes_that_put_the_same_package_at_once_agree(
    tmp_path: Path, place: str, shared: SharedPackages, source: Path
) -> None:
    writers = [a_writer(tmp_path, place, source, "plain") for _ in range(3)]
    for writer in writers:
        begin(writer)
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert digest(shared) == hashlib.sha256(source.read_bytes()).hexdigest()
    assert list(shared.last_used()) == [NAME]


def test_a_writer_that_is_killed_leaves_nothing_that_anybody_sees(
    tmp_path: Path, place: str, shared: SharedPackages, store: Store, source: Path
) -> None:
    writer = a_writer(tmp_path, place, source, "slow")
    begin(writer)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "in the middle\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()

    assert digest(shared) is None
    assert not shared.touch(NAME)
    assert shared.last_used() == {}
    shared.put(NAME, source)
    assert digest(shared) == hashlib.sha256(source.read_bytes()).hexdigest()

    shared.remove_leftovers()
    used = _space(tmp_path, store)
    shared._now = lambda now=shared._now: now() + HALF_WRITTEN_S + 1  # type: ignore[attr-defined]
    shared.remove_leftovers()
    assert used - _space(tmp_path, store) >= 2**20
    assert digest(shared) is not None


def _space(tmp_path: Path, store: Store) -> int:
    files = sum(path.stat().st_size for path in (tmp_path / "shared").rglob("*") if path.is_file())
    return store.retention.space().used_bytes + files
