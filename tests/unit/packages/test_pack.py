"""Package files: the same content is the same file, and nothing that changes meanwhile breaks it."""

import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.trees import incompressible, make_tree

from ray_multicluster_scheduler.errors import PackageProblem
from ray_multicluster_scheduler.packages.pack import (
    CHUNK_BYTES,
    MAX_BYTES,
    MOST_SHRINKING,
    Packed,
    copy_archive,
    largest_parts,
    pack_tree,
)
from ray_multicluster_scheduler.packages.tree import Source, list_tree

MIB = 1024**2


def packed(root: Path, **limits: int) -> Packed:
    return pack_tree(list_tree(Source(root=root)), io.BytesIO(), **limits)


def unpacked(root: Path) -> zipfile.ZipFile:
    target = io.BytesIO()
    pack_tree(list_tree(Source(root=root)), target)
    return zipfile.ZipFile(target)


NAMES = st.lists(st.sampled_from(["a", "b", "c", "d e", "é", "x.py"]), min_size=1, max_size=3).map("/".join)


@settings(max_examples=40, deadline=None)
@given(
    files=st.dictionaries(NAMES, st.binary(max_size=50), max_size=6),
    order=st.randoms(use_true_random=False),
    stamp=st.integers(0, 2**31),
)
def test_the_same_content_has_the_same_name_whatever_its_order_and_times(
    tmp_path_factory: pytest.TempPathFactory, files: Mapping[str, bytes], order: object, stamp: int
) -> None:
    real = {n: c for n, c in files.items() if not any(n.startswith(f"{other}/") for other in files)}
    one = make_tree(tmp_path_factory.mktemp("one"), real)
    shuffled = list(real.items())
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    other = make_tree(tmp_path_factory.mktemp("other"), dict(shuffled))
    for path in other.rglob("*"):
        os.utime(path, (stamp, stamp))
    assert packed(one) == packed(other)


def test_other_content_names_and_permissions_have_other_names(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {"run.sh": "echo"})
    seen = [packed(root).name]
    (root / "run.sh").chmod(0o755)
    seen.append(packed(root).name)
    (root / "run.sh").write_text("exit")
    seen.append(packed(root).name)
    (root / "run.sh").rename(root / "go.sh")
    seen.append(packed(root).name)
    assert len(set(seen)) == len(seen)


def test_a_script_stays_executable_and_a_private_file_private(tmp_path: Path) -> None:
    make_tree(tmp_path, {"run.sh": "", "key": ""})
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "key").chmod(0o600)
    modes = {info.filename: (info.external_attr >> 16) & 0o777 for info in unpacked(tmp_path).infolist()}
    assert modes == {"run.sh": 0o755, "key": 0o600}


def test_the_name_is_one_that_ray_accepts(tmp_path: Path) -> None:
    result = packed(make_tree(tmp_path, {"a.py": ""}))
    assert result.name == f"_ray_pkg_{result.sha256[:40]}.zip"


def test_an_empty_directory_is_a_package_too(tmp_path: Path) -> None:
    assert unpacked(tmp_path).namelist() == []


def test_progress_is_told_in_bytes_after_each_piece(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    large = CHUNK_BYTES + 7
    tree = list_tree(Source(root=make_tree(tmp_path, {"a": "", "b": "123", "c": "x" * large})))
    pack_tree(tree, io.BytesIO(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, large + 3) for done in (0, 3, 3 + CHUNK_BYTES, 3 + large)]


def test_what_cannot_fit_is_refused_before_any_of_it_is_read(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a": ""})
    with (tmp_path / "data.bin").open("wb") as sparse:
        sparse.truncate(MOST_SHRINKING * MAX_BYTES + 1)
    read: list[int] = []
    with pytest.raises(PackageProblem, match=r"(?s)too large to send: .*data\.bin"):
        pack_tree(list_tree(Source(root=tmp_path)), io.BytesIO(), progress=lambda done, _: read.append(done))
    assert read == []


def test_files_that_grow_shrink_or_vanish_meanwhile_do_not_break_the_package(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a.py": "a", "b.grows": "b", "c.shrinks": "c" * 100, "d.gone": "d"})
    tree = list_tree(Source(root=tmp_path))
    (tmp_path / "b.grows").write_text("b" * 5000)
    (tmp_path / "c.shrinks").write_text("")
    (tmp_path / "d.gone").unlink()
    target = io.BytesIO()
    pack_tree(tree, target)
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        assert {info.filename: info.file_size for info in archive.infolist()} == {
            "a.py": 1,
            "b.grows": 5000,
            "c.shrinks": 0,
        }


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a.py": "", "secret.key": ""})
    tree = list_tree(Source(root=tmp_path))
    (tmp_path / "secret.key").unlink()
    (tmp_path / "secret.key").mkdir()  # cannot be opened, not even by root
    with pytest.raises(PackageProblem, match=r"secret\.key cannot be read .*`excludes`"):
        pack_tree(tree, io.BytesIO())


def test_a_large_directory_is_refused_with_what_is_large_in_it(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            "data/raw/a.bin": incompressible(3 * MIB),
            "models/one.bin": incompressible(MIB),
            "models/two.bin": incompressible(MIB),
            "main.py": "print(1)",
        },
    )
    with pytest.raises(PackageProblem) as caught:
        packed(tmp_path, max_bytes=MIB)
    message = str(caught.value)
    assert "4 files with 5.0 MiB" in message
    assert "limit of 1.0 MiB" in message
    assert "3.0 MiB  data/raw/a.bin" in message
    assert "2.0 MiB  models/" in message
    assert '"excludes": ["/data/raw/a.bin", "/models/"]' in message


def test_the_proposed_excludes_are_enough(tmp_path: Path) -> None:
    make_tree(tmp_path, {"data/a.bin": incompressible(2 * MIB), "main.py": "print(1)"})
    with pytest.raises(PackageProblem):
        packed(tmp_path, max_bytes=MIB)
    tree = list_tree(Source(root=tmp_path, excludes=("/data/a.bin",)))
    assert pack_tree(tree, io.BytesIO(), max_bytes=MIB).files == 2


def test_what_compresses_well_may_be_larger_than_the_limit(tmp_path: Path) -> None:
    make_tree(tmp_path, {"zeros.bin": bytes(3 * MIB)})
    assert packed(tmp_path, max_bytes=MIB).size < MIB


def test_packing_stops_at_the_limit_and_does_not_fill_the_disk(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a.bin": incompressible(8 * MIB)})
    target = io.BytesIO()
    with pytest.raises(PackageProblem):
        pack_tree(list_tree(Source(root=tmp_path)), target, max_bytes=MIB)
    assert len(target.getvalue()) < 4 * MIB


def test_a_directory_is_shown_by_the_one_thing_that_makes_it_large() -> None:
    sizes = {"a/b/big.bin": 90, "a/b/small": 5, "a/other": 1, "c/x": 10, "c/y": 10, "d": 30}
    assert largest_parts(sizes) == [("a/b/big.bin", 90), ("d", 30), ("c/", 20)]


def a_zip(path: Path, content: str = "x") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("main.py", content)
    return path


def test_a_given_zip_is_taken_as_it_is(tmp_path: Path) -> None:
    path = a_zip(tmp_path / "code.zip")
    target = io.BytesIO()
    result = copy_archive(path, target)
    assert target.getvalue() == path.read_bytes()
    assert result.name == f"_ray_pkg_{result.sha256[:40]}.zip"


def test_a_wheel_that_was_built_again_gets_another_name(tmp_path: Path) -> None:
    wheel = a_zip(tmp_path / "my_pkg-1.0+local.2-py3-none-any.whl", "old")
    old = copy_archive(wheel, io.BytesIO())
    new = copy_archive(a_zip(wheel, "new"), io.BytesIO())
    assert old.name == f"my_pkg-1.0+local.2-0{old.sha256[:40]}-py3-none-any.whl"
    assert new.name != old.name


def test_a_build_tag_gives_way_to_the_hash(tmp_path: Path) -> None:
    result = copy_archive(a_zip(tmp_path / "pkg-1.0-7-py3-none-any.whl"), io.BytesIO())
    assert result.name == f"pkg-1.0-0{result.sha256[:40]}-py3-none-any.whl"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("code.zip", b"not a zip", "is not a zip file"),
        ("code.zip", bytes(2000), "which Ray refuses"),
        ("pkg.whl", None, "not the name of a wheel"),
    ],
)
def test_an_archive_that_ray_would_choke_on_is_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is None:
        a_zip(path)
    else:
        path.write_bytes(content)
    with pytest.raises(PackageProblem, match=message):
        copy_archive(path, io.BytesIO(), max_bytes=1000)
