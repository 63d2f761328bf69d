"""The package store: each package once, durable, private, and gone when nobody needs it."""

import os
import stat
import subprocess
import sys
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.trees import a_store, incompressible, make_tree, names_in

from ray_multicluster_scheduler.errors import PackageProblem, StoreBusy, StoreError
from ray_multicluster_scheduler.packages import store as package_store
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.tree import Source


def count_packings(store: PackageStore, source: Source, times: int) -> int:
    """Submit a directory of one file several times; return how often it was packed."""
    packings: list[int] = []
    for _ in range(times):
        store.add_tree(source, progress=lambda done, _total: packings.append(done))
    return len(packings)


def files_of(store_directory: Path) -> list[str]:
    """The packages, and temporary files if there are any."""
    own = {".lock", ".rayignore"}
    return sorted(path.name for path in store_directory.iterdir() if path.is_file() and path.name not in own)


def test_a_directory_submitted_200_times_is_packed_once(tmp_path: Path) -> None:
    source = Source(root=make_tree(tmp_path / "code", {"main.py": "print(1)"}))
    assert count_packings(a_store(tmp_path), source, 200) == 1


def test_another_process_profits_from_what_one_packed(tmp_path: Path) -> None:
    source = Source(root=make_tree(tmp_path / "code", {"main.py": "print(1)"}))
    name = a_store(tmp_path).add_tree(source)
    second = a_store(tmp_path)
    assert count_packings(second, source, 1) == 0
    assert second.add_tree(source) == name


def test_a_change_of_the_same_size_is_packed_again(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "code", {"main.py": "print(1)"})
    store = a_store(tmp_path)
    old = store.add_tree(Source(root=root))
    stamp = (root / "main.py").stat().st_mtime
    (root / "main.py").write_text("print(2)")
    os.utime(root / "main.py", (stamp, stamp))  # as a tool that restores time stamps does
    assert store.add_tree(Source(root=root)) != old


def test_a_tree_changed_a_moment_ago_is_not_trusted_to_be_quiet(tmp_path: Path) -> None:
    source = Source(root=make_tree(tmp_path / "code", {"main.py": "print(1)"}))
    assert count_packings(a_store(tmp_path, seconds_later=0.0), source, 2) == 2


def test_a_tree_that_changes_while_it_is_packed_is_packed_again_next_time(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "code", {"a.py": "#", "main.py": "print(1)"})
    store = a_store(tmp_path)

    def touch(done: int, _total: int) -> None:
        if done == 1:
            (root / "main.py").write_text("print(2)")

    store.add_tree(Source(root=root), progress=touch)
    (root / "main.py").write_text("print(1)")
    name = store.add_tree(Source(root=root))
    path = store.path(name)
    assert path is not None
    assert zipfile.ZipFile(path).read("main.py") == b"print(1)"


def test_many_threads_may_add_the_same_directory_at_once(tmp_path: Path) -> None:
    source = Source(root=make_tree(tmp_path / "code", {f"{n}.py": str(n) for n in range(20)}))
    store = a_store(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        names = set(pool.map(lambda _: store.add_tree(source), range(16)))
    assert len(names) == 1
    assert files_of(tmp_path / "packages") == sorted(names)


def test_a_store_inside_the_directory_is_not_sent_along(tmp_path: Path) -> None:
    store = a_store(make_tree(tmp_path, {"main.py": ""}))
    source = Source(root=tmp_path)
    name = store.add_tree(source)
    assert names_in(store, name) == ["main.py", "packages/"]
    assert store.add_tree(source) == name


def test_packages_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    path = store.path(store.add_tree(Source(root=make_tree(tmp_path / "code", {"a.py": ""}))))
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "name", ["../secret.zip", "/etc/passwd", ".lock", "", "known", "a/b.zip", "_ray_pkg_1.zip"]
)
def test_only_packages_can_be_asked_for(tmp_path: Path, name: str) -> None:
    make_tree(tmp_path, {"secret.zip": ""})
    assert a_store(tmp_path).path(name) is None


def test_a_failed_packing_leaves_nothing_behind(tmp_path: Path) -> None:
    store = a_store(tmp_path, max_bytes=1000)
    with pytest.raises(PackageProblem, match="too large"):
        store.add_tree(Source(root=make_tree(tmp_path / "code", {"a.bin": incompressible(5000)})))
    assert files_of(tmp_path / "packages") == []


def test_a_store_that_cannot_be_written_says_where_it_is(tmp_path: Path) -> None:
    source = Source(root=make_tree(tmp_path / "code", {"a.py": ""}))
    store = a_store(tmp_path)
    (tmp_path / "packages").rename(tmp_path / "moved")
    with pytest.raises(StoreError, match="packages: the package cannot be kept"):
        store.add_tree(source)


def test_what_a_killed_process_left_half_written_is_removed_and_what_a_live_one_writes_is_not(
    tmp_path: Path,
) -> None:
    """The writer holds a lock on its temporary file; the lock dies with it."""
    directory = tmp_path / "packages"
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from ray_multicluster_scheduler.packages.store import PackageStore
        from ray_multicluster_scheduler.packages.tree import Source

        def wait(done, total):
            print("packing", flush=True)
            sys.stdin.read()

        PackageStore(Path(sys.argv[1])).add_tree(Source(root=Path(sys.argv[2])), progress=wait)
        """
    )
    root = make_tree(tmp_path / "code", {"a.py": ""})
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(directory), str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"packing\n"
        PackageStore(directory)
        assert len(files_of(directory)) == 1
        writer.kill()
    assert len(files_of(directory)) == 1
    PackageStore(directory)
    assert files_of(directory) == []


def test_collecting_keeps_what_open_jobs_need_and_what_was_asked_for_lately(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    sources = [Source(root=make_tree(tmp_path / name, {"a.py": name})) for name in ("one", "two", "three")]
    needed, unneeded, _ = (store.add_tree(source) for source in sources)
    later = a_store(tmp_path, seconds_later=10_000)
    asked_again = later.add_tree(sources[2])

    assert later.collect({needed, "_ray_pkg_0123456789abcdef.zip"}, older_than_s=3600) == (unneeded,)
    assert files_of(tmp_path / "packages") == sorted([needed, asked_again])


def test_a_package_stays_for_a_while_after_its_job_has_ended(tmp_path: Path) -> None:
    name = a_store(tmp_path).add_tree(Source(root=make_tree(tmp_path / "code", {"a.py": ""})))

    assert a_store(tmp_path, seconds_later=10_000).collect({name}, older_than_s=3600) == ()
    assert a_store(tmp_path, seconds_later=13_000).collect((), older_than_s=3600) == ()
    assert a_store(tmp_path, seconds_later=14_000).collect((), older_than_s=3600) == (name,)


def test_a_package_that_was_asked_for_stays_for_a_while(tmp_path: Path) -> None:
    name = a_store(tmp_path).add_tree(Source(root=make_tree(tmp_path / "code", {"a.py": ""})))
    later = a_store(tmp_path, seconds_later=10_000)

    assert later.ask_for(name)
    assert later.collect((), older_than_s=3600) == ()
    assert not later.ask_for("_ray_pkg_0123456789abcdef.zip")


def test_a_collected_package_is_made_again_when_it_is_needed(tmp_path: Path) -> None:
    source = Source(root=make_tree(tmp_path / "code", {"a.py": ""}))
    store = a_store(tmp_path)
    name = store.add_tree(source)
    assert store.collect(set(), older_than_s=-1) == (name,)
    assert list((tmp_path / "packages" / "known").iterdir()) == []
    assert store.add_tree(source) == name
    assert names_in(store, name) == ["a.py"]


def test_a_damaged_memory_of_known_trees_is_only_a_reason_to_pack_again(tmp_path: Path) -> None:
    source = Source(root=make_tree(tmp_path / "code", {"a.py": ""}))
    store = a_store(tmp_path)
    name = store.add_tree(source)
    for known in (tmp_path / "packages" / "known").iterdir():
        known.write_text("")
    assert store.add_tree(source) == name


def test_a_process_that_is_suspended_with_the_lock_does_not_hang_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, source = a_store(tmp_path), Source(root=make_tree(tmp_path / "code", {"main.py": "print(1)"}))
    monkeypatch.setattr(package_store, "LOCK_WAIT_S", 0.05)
    with store._locked():
        another = a_store(tmp_path)
        with pytest.raises(StoreBusy, match="another process has held its lock"):
            another.add_tree(source)
    assert another.add_tree(source)
