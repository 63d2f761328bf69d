"""The house does not grow chopped again: numbers that may fall and not rise."""

import ast
from collections import defaultdict
from pathlib import Path

from tests.unit.test_layers import MODULES, PACKAGE, SRC, imports_of, tree

#: Files of the package.
FILES = 294
#: In percent: docstring and imports of a file, before its first statement.
HEADERS = 11.7
#: Why a module may have a single importer, and which ones have that reason.
REASONS = {
    "runs in another process or on another machine": (
        "cluster_health/trial_program.py",
        "embedded.py",
        "tasks/wire/*.py",
    ),
    "import time: loaded with the first call that needs it, or with an extra": (
        "core/placement/matrix.py",
        "inspection/*.py",
        "server/login_page.py",
        "server/serve.py",
        "server/traces.py",
    ),
    "import time: a command is loaded when it is given": ("cli/commands/*.py",),
    "one of a list: a page of the dashboard, listed in mount": ("dashboard/mount.py", "dashboard/pages/*.py"),
    "one of a list: a router of the server, listed in app": ("server/ray_jobs.py", "server/v1/*.py"),
    "a plug-in, found by the registry": ("executors/*.py",),
    "one database of two": ("store/postgres/*.py", "store/sqlite/*.py"),
    "a public seam: an older import path, or for tests of others": ("app/client_api/*.py", "testing/*.py"),
}
#: Modules with a single importer and none of these reasons. Join a new one with its only user, or raise the
#: number and say in the commit why it is a noun of its own.
WITHOUT_REASON = 24
#: All modules with a single importer.
ONE_IMPORTER = 80


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


def with_one_importer() -> list[Path]:
    names = {dotted(path): path for path in MODULES}
    importers: dict[str, set[str]] = defaultdict(set)
    for module, path in names.items():
        for name in imports_of(path):
            for known in (name, name.rpartition(".")[0]):
                if known in names and known != module:
                    importers[known].add(module)
    return [
        path
        for name, path in names.items()
        if len(importers[name]) == 1 and path.name not in {"__init__.py", "__main__.py"}
    ]


def test_no_more_modules_have_a_single_importer_without_a_reason() -> None:
    found = with_one_importer()
    globs = [glob for several in REASONS.values() for glob in several]
    without = [str(path) for path in found if not any(path.match(glob) for glob in globs)]
    assert len(without) <= WITHOUT_REASON, without
    assert len(found) <= ONE_IMPORTER, found
    assert [glob for glob in globs if not any(path.match(glob) for path in found)] == []


def test_the_package_has_no_more_files() -> None:
    assert len(MODULES) <= FILES


def test_headers_do_not_take_more_of_the_lines() -> None:
    lines = sum(map(lines_of, MODULES))
    assert 100 * sum(map(header_lines, MODULES)) / lines <= HEADERS
