"""What is sent to clusters by value must not need our package there."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "src" / "ray_multicluster_scheduler"
WIRE = PACKAGE / "tasks" / "wire"
#: Pickled by value: see `send_by_value` in `tasks/bridges.py`.
OURS = tuple(f"ray_multicluster_scheduler.{each}." for each in ("tasks.wire", "asyncio_tools", "errors"))


def imports_of(path: Path) -> set[str]:
    """Every name that a module imports, with the module it comes from."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", sorted(WIRE.glob("*.py")), ids=lambda path: path.name)
def test_the_wire_imports_only_the_standard_library_ray_and_what_is_sent_with_it(path: Path) -> None:
    for name in imports_of(path):
        assert name.split(".")[0] in {*sys.stdlib_module_names, "ray"} or name.startswith(OURS), name


@pytest.mark.parametrize("module", ["asyncio_tools.py", "errors.py"])
def test_what_is_sent_with_the_wire_imports_only_the_standard_library(module: str) -> None:
    assert {name.split(".")[0] for name in imports_of(PACKAGE / module)} <= sys.stdlib_module_names
