"""What users upload: each has names of their own, within limits, and what open jobs need stays."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from ray_multicluster_scheduler.errors import InvalidRequest, InvalidRuntimeEnv, QuotaExceeded
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.uploads import FRESH_S, Uploads, check_name
from ray_multicluster_scheduler.store import Store, open_memory_store

A, B, C = (f"_ray_pkg_{letter * 16}.zip" for letter in "abc")


class World:
    """Uploads with a clock, and jobs that need some of them."""

    def __init__(self, folder: Path, *, store: Store | None = None, **limits: Any) -> None:
        self.store = store or open_memory_store()
        self.now = 1_000_000.0
        self.needed: Collection[str] = ()
        self.folder = folder
        self.packages = PackageStore(folder / "packages", now=lambda: self.now)
        self.uploads = Uploads(
            self.store.uploads,
            self.packages,
            needed=lambda: self.needed,
            now=lambda: self.now,
            **limits,
        )

    def put(self, user: str, name: str, content: bytes) -> str:
        with self.packages.receive() as file:
            file.write(content)
            return self.uploads.keep(user, name, file)

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "packages").glob("_ray_pkg*"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_name_means_what_its_user_has_uploaded(world: World) -> None:
    anns, bobs = world.put("ann", A, b"one"), world.put("bob", A, b"two")

    assert world.uploads.content("ann", A) == anns
    assert world.uploads.content("bob", A) == bobs
    assert anns != bobs
    assert world.uploads.content("eve", A) is None
    path = world.packages.path(anns)
    assert path is not None
    assert path.read_bytes() == b"one"


def test_what_a_client_was_told_is_here_is_not_collected_before_it_submits(world: World) -> None:
    content = world.put("ann", A, b"one")
    world.now += 10 * FRESH_S

    assert world.uploads.content("ann", A) == content
    assert world.packages.collect((), older_than_s=FRESH_S) == ()
    world.now += 10 * FRESH_S
    assert world.packages.collect((), older_than_s=FRESH_S) == (content,)
    assert world.uploads.content("ann", A) is None


def test_the_same_content_is_kept_once(world: World) -> None:
    assert world.put("ann", A, b"one") == world.put("bob", B, b"one")
    assert len(world.files()) == 1


def test_a_second_upload_of_a_name_replaces_it_for_its_user(world: World) -> None:
    first, second = world.put("ann", A, b"one"), world.put("ann", A, b"two")

    assert world.uploads.content("ann", A) == second
    # Jobs of the first one may wait; and what is shown of them can be submitted again.
    assert world.uploads.content("ann", first) == first
    assert world.uploads.content("bob", first) is None


def test_uploads_outlive_the_process(world: World, tmp_path: Path) -> None:
    kept = world.put("ann", A, b"one")
    assert World(tmp_path, store=world.store).uploads.content("ann", A) == kept


@pytest.mark.parametrize(
    "name",
    [
        "_ray_pkg_0123456789abcdef.zip",
        f"_ray_pkg_{'0' * 40}.tar.gz",
        f"_ray_pkg_{'f' * 40}.tar.xz",
        "tiny-1.0-py3-none-any.whl",
        "two_words-1.0.post1-1build-cp311-cp311-manylinux_2_17_x86_64.whl",
    ],
)
def test_names_of_rays_clients_are_taken(world: World, name: str) -> None:
    kept = world.put("ann", name, b"content")
    assert kept.endswith(name[name.index(".tar") :] if ".tar" in name else name[-4:])
    assert world.packages.path(kept) is not None


@pytest.mark.parametrize(
    "name",
    [
        *(
            "x" * 300 + ".zip",
            "evil.txt",
            "a.zip",
            "../../etc/x.zip",
            "..",
            "",
            ".lock",
            "_ray_pkg_0123.zip",
            "not-a-wheel.whl",
        ),
        *(
            "_ray_pkg_0123456789abcdeg.zip",
            "_ray_pkg_0123456789abcdef.zip\n",
            "a" * 300 + "-1.0-py3-none-any.whl",
        ),
        *(f"_ray_pkg_{'0' * 16}.zip\0", "x/tiny-1.0-py3-none-any.whl", "_ray_pkg_" + "٠" * 16 + ".zip"),
    ],
)
def test_other_names_are_refused_and_unknown(world: World, name: str) -> None:
    with pytest.raises(InvalidRequest, match="a package is called"):
        check_name(name)
    assert world.uploads.content("ann", name) is None


def test_environments_name_their_packages_by_content(world: World) -> None:
    a, b = world.put("ann", A, b"one"), world.put("ann", B, b"two")
    env = {
        "working_dir": f"gcs://{A}",
        "py_modules": [f"gcs://{B}", "https://example.com/x.zip"],
        "pip": ["x"],
    }

    assert world.uploads.localised("ann", env) == {
        "working_dir": f"gcs://{a}",
        "py_modules": [f"gcs://{b}", "https://example.com/x.zip"],
        "pip": ["x"],
    }


@pytest.mark.parametrize("option", ["working_dir", "py_modules"])
def test_a_package_that_the_user_has_not_uploaded_is_refused(world: World, option: str) -> None:
    world.put("bob", A, b"one")
    uri = f"gcs://{A}"
    with pytest.raises(InvalidRuntimeEnv, match=f"{A} was not uploaded by 'ann'"):
        world.uploads.localised("ann", {option: uri if option == "working_dir" else [uri]})


def test_the_least_recently_used_one_makes_room(tmp_path: Path) -> None:
    world = World(tmp_path, most=2)
    first, second = world.put("ann", A, b"one"), world.put("ann", B, b"two")
    world.now += FRESH_S + 1
    world.uploads.content("ann", A)
    world.put("ann", C, b"three")

    assert world.uploads.content("ann", B) is None
    assert world.packages.path(second) is None
    assert world.uploads.content("ann", A) == first


def test_what_open_jobs_need_makes_no_room(tmp_path: Path) -> None:
    world = World(tmp_path, most=2)
    world.needed = [world.put("ann", A, b"one"), world.put("ann", B, b"two")]
    world.now += FRESH_S + 1

    with pytest.raises(QuotaExceeded, match=r"'ann' has 2 packages here .* may have 2 with 20 GiB"):
        world.put("ann", C, b"three")
    world.put("ann", A, b"the same name again takes no more room")
    world.put("bob", C, b"three")


def test_what_was_used_a_moment_ago_makes_no_room(tmp_path: Path) -> None:
    world = World(tmp_path, most=1)
    world.put("ann", A, b"one")
    with pytest.raises(QuotaExceeded):
        world.put("ann", B, b"two")


def test_bytes_count_as_well(tmp_path: Path) -> None:
    world = World(tmp_path, most_bytes=10)
    world.put("ann", A, b"12345678")
    world.now += FRESH_S + 1
    world.put("ann", B, b"12345")
    assert world.uploads.content("ann", A) is None
    with pytest.raises(QuotaExceeded):
        world.put("ann", C, b"12345678901")


def test_a_content_that_somebody_else_has_too_stays(tmp_path: Path) -> None:
    world = World(tmp_path, most=1)
    shared = world.put("ann", A, b"one")
    world.put("bob", A, b"one")
    world.now += FRESH_S + 1
    world.put("ann", B, b"two")

    assert world.uploads.content("ann", A) is None
    assert world.uploads.content("bob", A) == shared
