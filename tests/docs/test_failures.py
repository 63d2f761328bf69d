"""The page about failures claims nothing that no test proves, and leaves no fault test out."""

import ast
import re
from pathlib import Path

from tests.support.pages import PAGES, ROOT

from ray_multicluster_scheduler.config import Settings

PAGE = (ROOT / "docs" / "failures.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NAMED = set(_TEST.findall(PAGE))


def names_in(path: Path) -> set[tuple[str, str]]:
    """The tests of a file, as the page names them."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, functions)]
    return {(str(path.relative_to(ROOT)), name) for name in found if name.startswith("test_")}


def test_every_test_that_a_page_names_exists() -> None:
    named = {test for page in PAGES for test in _TEST.findall(page.read_text())}
    assert named - {test for path, _ in named for test in names_in(ROOT / path)} == set()


def test_every_row_names_a_test() -> None:
    tables = PAGE.split("## Faults and outcomes")[1]
    rows = [line for line in tables.splitlines() if line.startswith("| ") and "proved by" not in line]
    assert len(rows) > 30
    assert [row for row in rows if "::test_" not in row] == []


def test_every_fault_on_real_ray_and_every_crash_point_has_its_row() -> None:
    paths = [ROOT / "tests/e2e/test_faults.py", ROOT / "tests/integration/test_crash_points.py"]
    assert {test for path in paths for test in names_in(path)} - NAMED == set()


def test_every_setting_in_the_table_is_one() -> None:
    table = PAGE.split("## What each setting does")[1].split("## ")[0]
    names = {
        name for line in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", line)
    }
    assert len(names) > 8
    assert names <= set(Settings.model_fields)
