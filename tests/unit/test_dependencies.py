"""What the package imports is declared in pyproject.toml: by the core, or by the extra of that part."""

import re
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from tests.unit.test_layers import MODULES, PACKAGE, SRC, imports_of

from ray_multicluster_scheduler.config.installed import NEWEST_RAY_TESTED

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = SRC.parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: Which extras a part may count on, longer paths first. All others have the dependencies of the core.
EXTRAS = {
    "store/postgres/": {"postgres"},
    "packages/shared_packages.py": {"packages"},
    "client/result.py": {"packages"},  # only of a result that is a URL
    "server/traces.py": {"server", "traces"},
    "server/": {"server"},
    "dashboard/": {"dashboard"},
    "ray_client/": {"server", "tasks"},
    "tasks/wire/": {"tasks"},
    "joblib.py": {"joblib"},
    "client/tasks.py": {"tasks"},  # for type checkers
    "client/init_ray.py": {"pipeline"},  # whose task on a worker tries to import pandas
    "raymc_pipeline/": {"pipeline"},
    "raymc_demo/": {"dashboard", "ray"},
    "raymc_relay/": {"server"},
}
BESIDE = sorted(path for path in SRC.parent.glob("raymc_*/**/*.py"))
#: Runs on the nodes, beside what it imports.
SENT_ALONG = {"raymc_overlay"}
#: The packages of this distribution.
OURS = {PACKAGE, "raymc_demo", "raymc_pipeline", "raymc_relay"}
#: Distributions that are not called as their module is.
NAMES = {
    "google": "protobuf",
    "opentelemetry": "opentelemetry-sdk",
    "sklearn": "scikit-learn",
    "socketio": "python-socketio",
    "yaml": "pyyaml",
}
#: Names that are not promised are used of these.
PRIVATE = [
    ("tasks", "ray"),
    ("pipeline", "ray"),
    ("server", "uvicorn"),
    ("dashboard", "nicegui"),
    ("joblib", "joblib"),
]


def declared(extras: set[str]) -> dict[str, SpecifierSet]:
    """Each distribution that the core and these extras require, with its bounds."""
    found: dict[str, SpecifierSet] = {}
    groups = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][name] for name in extras)]
    for requirement in (Requirement(text) for group in groups for text in group):
        name = canonicalize_name(requirement.name)
        ours = name == PROJECT["name"]
        more = declared(requirement.extras) if ours else {name: requirement.specifier}
        for each, bounds in more.items():
            found[each] = found.get(each, SpecifierSet()) & bounds
    return found


def extras_of(path: Path) -> set[str]:
    own = path.relative_to(SRC.parent).as_posix() if path.is_absolute() else path.as_posix()
    return next((extras for start, extras in EXTRAS.items() if own.startswith(start)), set())


def undeclared(path: Path) -> set[str]:
    own = declared(extras_of(path)).keys()
    roots = {name.split(".")[0] for name in imports_of(path)}
    foreign = roots - sys.stdlib_module_names - SENT_ALONG - OURS
    return {root for root in foreign if canonicalize_name(NAMES.get(root, root)) not in own}


def test_what_is_imported_is_declared() -> None:
    found = {path.name: missing for path in [*MODULES, *BESIDE] if (missing := undeclared(path))}
    assert found == {}


def test_a_library_whose_private_names_are_used_has_an_upper_bound() -> None:
    pinned = dict(re.findall(r"^([a-z-]+)==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    for extra, library in PRIVATE:
        newest = Version(pinned[library])
        bounds = declared({extra})[library]
        assert newest in bounds, f"{library} {newest} is tested"
        assert f"{newest.major}.{newest.minor + 1}" not in bounds, f"{library} is tested up to {newest}"
    assert Version(pinned["ray"]).release[:2] == NEWEST_RAY_TESTED


def test_jobs_and_local_clusters_take_any_ray_since_2_9() -> None:
    assert declared({"ray"})["ray"] == SpecifierSet(">=2.9")
    assert "ray" not in declared(set())
