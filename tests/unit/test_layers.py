"""The folder list is the architecture: these tests keep it true."""

import ast
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from ray_multicluster_scheduler.cli import lazy_imports

SRC = Path(__file__).parents[2] / "src" / "ray_multicluster_scheduler"
PACKAGE = "ray_multicluster_scheduler"

#: Low to high. A module imports only from its own layer's folder or from below.
LAYERS = [
    "version",
    "errors",
    "text",
    "model",
    "environment",
    "core",
    "ports",
    "clock",
    "asyncio_tools",
    "log_format",
    "config",
    "ray_api",
    "store",
    "executors",
    "packages",
    "cluster_health",
    "service",
    "engine",
    "inspection",
    "maintenance",
    "tasks",
    "background",
    "local",
    "testing",
    "runtime",
    "embedded",
    "scheduler_process",
    "ray_client",
    "client",
    "common",
    "app",
    "aio",
    "joblib",
    "__init__",
    "dashboard",
    "server",
    "cli",
    "__main__",
]
IMPURE = {
    "aiohttp", "alembic", "asyncio", "concurrent", "datetime", "http", "io", "logging", "multiprocessing",
    "os", "pathlib", "pydantic", "random", "ray", "requests", "secrets", "shutil", "signal", "socket",
    "sqlalchemy", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib", "uuid", "yaml",
}  # fmt: skip

#: Who lets callers in, and what they reach only through `service`: what they did past it, no caller would
#: get over HTTP.
DOORS = {"client", "app", "aio.py", "joblib.py", "__init__.py", "dashboard", "server", "cli", "ray_client"}
BEHIND_THE_SERVICE = {"store", "engine", "ray_api", "executors"}
#: What opens a store knows its database; the rest of `store` works on any.
DATABASES = (f"{PACKAGE}.store.sqlite", "sqlite3", f"{PACKAGE}.store.postgres", "psycopg")
OPENING = {Path("store/__init__.py"), Path("store/open_place.py")}
CALLS_OUTSIDE = {"open", "print", "input", "exec", "eval", "__import__"}

MODULES = sorted(path.relative_to(SRC) for path in SRC.rglob("*.py"))
PURE = [
    path for path in MODULES if path.parts[0].removesuffix(".py") in {"text", "model", "environment", "core"}
] + [Path("tasks/map_plan.py")]
STORE = [path for path in MODULES if path.parts[0] == "store"]
SCHEMA = [path for path in STORE if path.is_relative_to("store/schema")]
NEUTRAL_STORE = [
    path for path in STORE if path.parent.name not in {"sqlite", "postgres"} and path not in OPENING
]
DOOR_MODULES = [path for path in MODULES if path.parts[0] in DOORS]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse((SRC / path).read_text())


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Every module that `path` imports, at any depth of nesting, as an absolute dotted name."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def ours(path: Path) -> set[str]:
    """What `path` imports of this package."""
    return {name for name in imports_of(path) if name.split(".")[0] == PACKAGE}


def layer_of(dotted: str) -> str:
    """Name the layer of an absolute import inside the package."""
    parts = dotted.split(".")[1:]
    return parts[0] if parts and parts[0] in LAYERS else "__init__"


def offenders(paths: list[Path], wrong_in: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """Return what is wrong, by the file that it is in."""
    assert paths, "the rule is about no file"
    return {str(path): wrong for path in paths if (wrong := sorted(wrong_in(path)))}


def test_pure_folders_import_no_io_clock_random_or_logging() -> None:
    assert offenders(PURE, lambda path: {name.split(".")[0] for name in imports_of(path)} & IMPURE) == {}


def test_pure_folders_open_and_print_nothing() -> None:
    def called(path: Path) -> set[str]:
        calls = [node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        return {call.id for call in calls if isinstance(call, ast.Name)}

    assert offenders(PURE, lambda path: called(path) & CALLS_OUTSIDE) == {}


def test_no_module_imports_upward() -> None:
    def from_above(path: Path) -> list[str]:
        # `python -m` of a folder is a front door, like the command line: nothing imports it.
        own = "__main__" if path.name == "__main__.py" else path.parts[0].removesuffix(".py")
        assert own in LAYERS, f"{own} has no place in the list of layers"
        return [name for name in ours(path) if LAYERS.index(layer_of(name)) > LAYERS.index(own)]

    assert offenders(MODULES, from_above) == {}


def test_the_operations_of_the_store_do_not_know_which_database_it_is_on() -> None:
    assert (
        offenders(NEUTRAL_STORE, lambda path: [n for n in imports_of(path) if n.startswith(DATABASES)]) == {}
    )


def test_the_schema_of_the_store_knows_no_operation_on_it() -> None:
    def operations(path: Path) -> list[str]:
        store = [name for name in ours(path) if name.startswith(f"{PACKAGE}.store.")]
        return [name for name in store if not name.startswith(f"{PACKAGE}.store.schema.")]

    assert offenders(SCHEMA, operations) == {}


def test_the_doors_call_the_service_and_nothing_behind_it() -> None:
    assert (
        offenders(DOOR_MODULES, lambda path: [n for n in ours(path) if layer_of(n) in BEHIND_THE_SERVICE])
        == {}
    )


def test_the_doors_reach_past_the_service_in_no_other_way() -> None:
    def reached(path: Path) -> set[str]:
        attributes = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)]
        past = [node for node in attributes if node.attr in {"store", "parts"}]
        return {ast.unparse(node) for node in past if ast.unparse(node.value).endswith("scheduler")}

    assert offenders(DOOR_MODULES, reached) == {}


def test_a_command_imports_nothing_behind_the_service_later_either() -> None:
    assert not {home.split(".")[0] for home in lazy_imports._HOMES.values()} & BEHIND_THE_SERVICE


def test_the_relay_knows_nothing_of_the_scheduler() -> None:
    modules = SRC.parent.joinpath("raymc_relay").glob("*.py")
    assert not {name for path in modules for name in imports_of(path) if name.startswith(PACKAGE)}
