"""What is sent to clusters by value must not need our package there."""

import ast
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[3] / "src"
WIRE = SRC / "ray_multicluster_scheduler" / "tasks" / "wire"
OURS = ("ray_multicluster_scheduler.tasks.wire.", "ray_multicluster_scheduler.errors.")


@pytest.mark.parametrize("path", sorted(WIRE.glob("*.py")), ids=lambda path: path.name)
def test_the_wire_imports_only_the_standard_library_ray_and_itself(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            root = name.split(".")[0]
            assert root in {*sys.stdlib_module_names, "ray"} or name.startswith(OURS), name
