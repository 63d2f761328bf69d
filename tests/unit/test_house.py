"""The house does not grow chopped again: numbers that may fall and not rise."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.unit.test_layers import MODULES, PACKAGE, SRC, imports_of, tree

#: Modules that exactly one other module imports. Join a new one with its only user, unless it is there for
#: another process, for import time, or is generated; then raise the number and say why in the commit.
ONE_IMPORTER = 72
#: In percent: docstring and imports of a file, before its first statement.
HEADERS = 13.0


def dotted(path: Path) -> str:
    return ".".join((PACKAGE, *path.with_suffix("").parts)).removesuffix(".__init__")


def lines_of(path: Path) -> int:
    return (SRC / path).read_text().count("\n")


def header_lines(path: Path) -> int:
    """The lines before the first statement that is neither docstring nor import."""
    for node in tree(path).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        if not (is_text or is_typing or isinstance(node, (ast.Import, ast.ImportFrom))):
            return node.lineno - 1
    return lines_of(path)


def test_no_more_modules_have_a_single_importer() -> None:
    names = {dotted(path): path for path in MODULES}
    importers: dict[str, set[str]] = defaultdict(set)
    for module, path in names.items():
        for name in imports_of(path):
            for known in (name, name.rpartition(".")[0]):
                if known in names and known != module:
                    importers[known].add(module)
    lonely = [
        name
        for name, path in names.items()
        if len(importers[name]) == 1 and path.name not in {"__init__.py", "__main__.py"}
    ]
    assert len(lonely) <= ONE_IMPORTER, lonely


def test_headers_do_not_take_more_of_the_lines() -> None:
    lines = sum(map(lines_of, MODULES))
    assert 100 * sum(map(header_lines, MODULES)) / lines <= HEADERS
