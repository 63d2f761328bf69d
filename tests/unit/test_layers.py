"""The folder list is the architecture: these tests keep it true."""

import ast
from pathlib import Path

import pytest

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
    "store_ports",
    "clock",
    "asyncio_tools",
    "log_format",
    "config",
    "ray_api",
    "store",
    "packages",
    "cluster_health",
    "service",
    "engine",
    "inspection",
    "maintenance",
    "tasks",
    "pipeline",
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
    "__init__",
    "dashboard",
    "server",
    "cli",
    "demo",
    "__main__",
]
IMPURE = {
    "aiohttp", "alembic", "asyncio", "concurrent", "datetime", "http", "io", "logging", "multiprocessing",
    "os", "pathlib", "pydantic", "random", "ray", "requests", "secrets", "shutil", "signal", "socket",
    "sqlalchemy", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib", "uuid", "yaml",
}  # fmt: skip

MODULES = sorted(SRC.rglob("*.py"))
PURE_FOLDERS = {"text", "model", "environment", "core"}
PURE = [path for path in MODULES if path.relative_to(SRC).parts[0] in PURE_FOLDERS]


def imports_of(path: Path) -> set[str]:
    """Every module that `path` imports, at any depth of nesting, as an absolute dotted name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer_of(dotted: str) -> str:
    """Name the layer of an absolute import inside the package."""
    parts = dotted.split(".")[1:]
    return parts[0] if parts and parts[0] in LAYERS else "__init__"


@pytest.mark.parametrize("path", PURE, ids=lambda p: str(p.relative_to(SRC)))
def test_pure_folders_import_no_io_clock_random_or_logging(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports_of(path)} & IMPURE


@pytest.mark.parametrize("path", PURE, ids=lambda p: str(p.relative_to(SRC)))
def test_pure_folders_open_and_print_nothing(path: Path) -> None:
    called = {
        n.func.id
        for n in ast.walk(ast.parse(path.read_text()))
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    assert not called & {"open", "print", "input", "exec", "eval", "__import__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_no_module_imports_upward(path: Path) -> None:
    # `python -m` of a folder is a front door, like the command line: nothing imports it.
    own = "__main__" if path.name == "__main__.py" else path.relative_to(SRC).parts[0].removesuffix(".py")
    assert own in LAYERS, f"{own} has no place in the list of layers"
    for name in imports_of(path):
        if name.split(".")[0] == PACKAGE:
            assert LAYERS.index(layer_of(name)) <= LAYERS.index(own), f"{path.name} imports {name} from above"


STORE = [path for path in MODULES if path.relative_to(SRC).parts[0] == "store"]
SCHEMA = [path for path in STORE if path.is_relative_to(SRC / "store" / "schema")]
#: What opens a store knows its database; the rest of `store` works on any.
DATABASES = (f"{PACKAGE}.store.sqlite", "sqlite3", f"{PACKAGE}.store.postgres", "psycopg")
OPENING = {Path("store/__init__.py"), Path("store/open_place.py")}
NEUTRAL_STORE = [
    path
    for path in STORE
    if path.parent.name not in {"sqlite", "postgres"} and path.relative_to(SRC) not in OPENING
]


@pytest.mark.parametrize("path", NEUTRAL_STORE, ids=lambda p: str(p.relative_to(SRC)))
def test_the_operations_of_the_store_do_not_know_which_database_it_is_on(path: Path) -> None:
    names = imports_of(path)
    assert not {name for name in names if name.startswith(DATABASES)}


@pytest.mark.parametrize("path", SCHEMA, ids=lambda p: str(p.relative_to(SRC)))
def test_the_schema_of_the_store_knows_no_operation_on_it(path: Path) -> None:
    ours = {name for name in imports_of(path) if name.startswith(f"{PACKAGE}.store.")}
    assert all(name.startswith(f"{PACKAGE}.store.schema.") for name in ours)


#: Who lets callers in, and what they reach only through `service`: what they did past it, no caller would
#: get over HTTP.
DOORS = {"client", "app", "aio.py", "__init__.py", "dashboard", "server", "cli", "demo"}
BEHIND_THE_SERVICE = {"store", "engine", "ray_api"}
DOOR_MODULES = [path for path in MODULES if path.relative_to(SRC).parts[0] in DOORS]


@pytest.mark.parametrize("path", DOOR_MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_the_doors_call_the_service_and_nothing_behind_it(path: Path) -> None:
    ours = {name for name in imports_of(path) if name.split(".")[0] == PACKAGE}
    assert not {layer_of(name) for name in ours} & BEHIND_THE_SERVICE


@pytest.mark.parametrize("path", DOOR_MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_the_doors_reach_past_the_service_in_no_other_way(path: Path) -> None:
    reached = {
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in {"store", "parts"}
        and ast.unparse(node.value).endswith("scheduler")
    }
    assert not reached


def test_a_command_imports_nothing_behind_the_service_later_either() -> None:
    assert not {home.split(".")[0] for home in lazy_imports._HOMES.values()} & BEHIND_THE_SERVICE
