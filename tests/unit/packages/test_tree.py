"""What of a directory is packed, and what stays behind."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.trees import make_tree

from ray_multicluster_scheduler.errors import PackageProblem
from ray_multicluster_scheduler.packages.tree import Source, list_tree

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def listed(root: Path, *excludes: str, **options: bool) -> list[str]:
    return [entry.name for entry in list_tree(Source(root=root, excludes=excludes, **options)).entries]


def git_keeps(root: Path) -> set[str]:
    """The files that git would not ignore."""
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    found = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--others", "--exclude-standard", "-z"],
        check=True,
        capture_output=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
    )
    return {os.fsdecode(name) for name in found.stdout.split(b"\0") if name}


@pytest.mark.parametrize(
    ("excludes", "kept"),
    [
        ((), ["data/a.csv", "data/raw/b.csv", "main.py", "notes.log", "src/data/c.py", "src/x.log"]),
        (("*.log",), ["data/a.csv", "data/raw/b.csv", "main.py", "src/data/c.py"]),
        (("data/",), ["main.py", "notes.log", "src/x.log"]),
        (("/data/",), ["main.py", "notes.log", "src/data/c.py", "src/x.log"]),
        (("data/*.csv",), ["data/raw/b.csv", "main.py", "notes.log", "src/data/c.py", "src/x.log"]),
        (("**/raw",), ["data/a.csv", "main.py", "notes.log", "src/data/c.py", "src/x.log"]),
        (("*.log", "!notes.log"), ["data/a.csv", "data/raw/b.csv", "main.py", "notes.log", "src/data/c.py"]),
        # Nothing below a directory that stays behind can be brought back: git's rule.
        (("data/", "!data/a.csv"), ["main.py", "notes.log", "src/x.log"]),
    ],
)
def test_excludes_are_gitignore_patterns_relative_to_the_root(
    tmp_path: Path, excludes: tuple[str, ...], kept: list[str]
) -> None:
    make_tree(
        tmp_path, dict.fromkeys(listing := ["data/a.csv", "data/raw/b.csv", "main.py", "notes.log"], "")
    )
    make_tree(tmp_path, {"src/data/c.py": "", "src/x.log": ""})
    assert listing
    assert [name for name in listed(tmp_path, *excludes) if not name.endswith("/")] == kept


def test_a_deeper_gitignore_beats_the_one_above(tmp_path: Path) -> None:
    make_tree(
        tmp_path,
        {
            ".gitignore": "*.csv\n/only_here\n",
            "a.csv": "",
            "only_here": "",
            "sub/.gitignore": "!keep.csv\n*.tmp\n",
            "sub/keep.csv": "",
            "sub/other.csv": "",
            "sub/x.tmp": "",
            "sub/only_here": "",
            "x.tmp": "",
        },
    )
    assert listed(tmp_path) == [".gitignore", "sub/.gitignore", "sub/keep.csv", "sub/only_here", "x.tmp"]


def test_gitignore_is_left_unread_where_the_user_says_so(tmp_path: Path) -> None:
    make_tree(tmp_path, {".gitignore": "*.csv\n", ".rayignore": "*.bin\n", "a.csv": "", "a.bin": ""})
    assert listed(tmp_path, use_gitignore=False) == [".gitignore", ".rayignore", "a.csv"]


def test_a_rayignore_counts_beside_the_gitignore(tmp_path: Path) -> None:
    make_tree(tmp_path, {".gitignore": "*.csv\n", ".rayignore": "!a.csv\n*.bin\n", "a.csv": "", "a.bin": ""})
    assert listed(tmp_path) == [".gitignore", ".rayignore"]


PARTS = st.sampled_from(["a", "b", "data", "x.py", "x.log", "keep"])
PATHS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)
PATTERNS = st.builds(
    lambda bang, anchor, body, end: bang + anchor + body + end,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/", "**/"]),
    st.lists(
        st.sampled_from(["a", "b", "data", "*", "*.py", "x.*", "keep", "**"]), min_size=1, max_size=2
    ).map("/".join),
    st.sampled_from(["", "/", "/*", "/**"]),
)


@needs_git
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.sets(PATHS, min_size=1, max_size=8),
    above=st.lists(PATTERNS, max_size=4),
    below=st.lists(PATTERNS, max_size=3),
)
def test_nested_gitignores_mean_what_git_says(
    tmp_path_factory: pytest.TempPathFactory, files: set[str], above: list[str], below: list[str]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    # A name cannot be both a file and a directory: what lies below another file is dropped.
    real = {name for name in files if not any(name.startswith(f"{other}/") for other in files)}
    make_tree(root, {**dict.fromkeys(real, ""), ".gitignore": "\n".join(above)})
    if (root / "a").is_dir():
        make_tree(root, {"a/.gitignore": "\n".join(below)})
    ours = {name for name in listed(root, ".git") if not name.endswith("/")}
    assert ours == git_keeps(root)


def test_links_are_followed_but_never_in_a_circle(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "root", {"sub/a.py": "", "b.py": ""})
    outside = make_tree(tmp_path / "shared", {"lib.py": ""})
    (root / "lib").symlink_to(outside)
    (root / "c.py").symlink_to("b.py")
    (root / "sub" / "up").symlink_to(root)
    (root / "self").symlink_to("self")
    (root / "dangling").symlink_to("nowhere")
    assert listed(root) == ["b.py", "c.py", "lib/lib.py", "sub/a.py"]


def test_sockets_and_pipes_are_left_out(tmp_path: Path) -> None:
    make_tree(tmp_path, {"a.py": ""})
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(os.path.relpath(tmp_path / "door"))
        assert listed(tmp_path) == ["a.py"]


def test_a_directory_that_nothing_is_packed_from_still_comes_along(tmp_path: Path) -> None:
    make_tree(tmp_path, {"out/": "", "logs/a.log": "", "a.py": ""})
    assert listed(tmp_path, "*.log") == ["a.py", "logs/", "out/"]


def test_a_module_keeps_the_name_of_its_directory(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "mymod", {"__init__.py": "", "data/x.bin": ""})
    assert listed(root, "/data", include_parent=True) == ["mymod/__init__.py"]


@pytest.mark.parametrize("name", ["back\\slash.py", os.fsdecode(b"latin-\xe9.py")])
def test_names_that_would_get_lost_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(PackageProblem, match="rename it or name it in `excludes`"):
        listed(tmp_path)
    assert listed(tmp_path, "*.py") == []


def test_what_cannot_be_packed_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackageProblem, match=r"missing cannot be packed: No such file"):
        listed(tmp_path / "missing")
    (tmp_path / "a.txt").touch()
    with pytest.raises(PackageProblem, match=r"a\.txt is not a directory"):
        listed(tmp_path / "a.txt")


def test_the_fingerprint_changes_with_content_time_and_mode_and_with_nothing_else(tmp_path: Path) -> None:
    def fingerprint() -> str:
        return list_tree(Source(root=tmp_path)).fingerprint

    make_tree(tmp_path, {"a.py": "one", "b.py": ""})
    seen = [fingerprint()]
    assert fingerprint() == seen[0]
    os.utime(tmp_path / "a.py", (1, 1))
    seen.append(fingerprint())
    (tmp_path / "a.py").chmod(0o755)
    seen.append(fingerprint())
    (tmp_path / "b.py").rename(tmp_path / "c.py")
    seen.append(fingerprint())
    assert len(set(seen)) == len(seen)
