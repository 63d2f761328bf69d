"""Single lines of an ignore file; tests/unit/packages/test_tree.py compares whole files with git itself."""

import pytest

from ray_multicluster_scheduler.packages.tree import parse_patterns, verdict


@pytest.mark.parametrize(
    ("line", "matching", "other"),
    [
        ("data", ["data", "src/data"], ["data2", "mydata", "data/x"]),
        ("/data", ["data"], ["src/data"]),
        ("src/data", ["src/data"], ["a/src/data"]),
        ("*.py", ["a.py", "src/a.py"], ["a.pyc", "a.py/b"]),
        ("src/*.py", ["src/a.py"], ["src/b/a.py", "a.py"]),
        ("**/raw", ["raw", "a/raw", "a/b/raw"], ["araw"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "ba/c"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["az", "a/bz"]),
        ("a**b", ["ab", "a1b"], ["a/b"]),
        ("v?.txt", ["v1.txt"], ["v10.txt", "v/.txt"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "/x"]),
        ("[!a-c]x", ["dx"], ["ax"]),
        ("[]x]", ["]", "x"], ["[]x]"]),
        ("[[:digit:]]", ["7"], ["a", "d"]),
        (r"\#note", ["#note"], [r"\#note"]),
        (r"a\*", ["a*"], ["ab"]),
        ("trailing  ", ["trailing"], ["trailing  "]),
        ("kept\\ ", ["kept "], ["kept"]),
        ("windows\r", ["windows"], []),
    ],
)
def test_a_pattern_matches_the_path_itself_and_nothing_else(
    line: str, matching: list[str], other: list[str]
) -> None:
    patterns = parse_patterns([line])
    assert [path for path in matching if verdict(patterns, path, is_directory=False) is not True] == []
    assert [path for path in other if verdict(patterns, path, is_directory=False) is not None] == []


@pytest.mark.parametrize("line", ["", "   ", "# a comment", "!", "/", "[a", "a\\", "[z-a]"])
def test_a_line_that_says_nothing_is_left_out(line: str) -> None:
    assert parse_patterns([line]) == ()


def test_a_slash_at_the_end_means_directories_only() -> None:
    patterns = parse_patterns(["build/"])
    assert verdict(patterns, "build", is_directory=True) is True
    assert verdict(patterns, "build", is_directory=False) is None


def test_the_last_matching_line_decides() -> None:
    patterns = parse_patterns(["*.csv", "!keep.csv", "/keep.csv"])
    assert verdict(patterns, "a.csv", is_directory=False) is True
    assert verdict(patterns, "sub/keep.csv", is_directory=False) is False
    assert verdict(patterns, "keep.csv", is_directory=False) is True
    assert verdict(patterns, "a.py", is_directory=False) is None
