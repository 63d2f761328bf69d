import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ray_multicluster_scheduler.environment.options import PACKAGE_NAME, PACKAGE_VAR
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.to_cluster import (
    ROOT,
    OwnPackage,
    others_on_path,
    takes_own_package,
    with_own_package,
    without_own_package,
)

URI = "gcs://_ray_pkg_0.zip"
#: Imports the modules named on its command line where only what `ray[default]` brings can be imported.
IMPORT_ALL = """
import importlib, re, sys
from importlib.metadata import distribution, packages_distributions, PackageNotFoundError
from packaging.requirements import Requirement

def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()

def closure(name, extras, seen):
    if (plain(name), extras) in seen:
        return
    seen.add((plain(name), extras))
    try:
        requires = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for line in requires:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            closure(requirement.name, tuple(sorted(requirement.extras)), seen)

known = set()
closure("ray", ("default",), known)
allowed = {name for name, _ in known}
owners = packages_distributions()

class OnlyRayDefault:
    def find_spec(self, name, path=None, target=None):
        owned_by = {plain(each) for each in owners.get(name.partition(".")[0], ())}
        if owned_by and not owned_by & allowed:
            raise ImportError(f"{name} is not there with ray[default] alone")
        return None

sys.meta_path.insert(0, OnlyRayDefault())
for module in sys.argv[1:]:
    if module == "ray":  # which brings some modules inside of itself
        sys.meta_path.pop(0)
        importlib.import_module(module)
        sys.meta_path.insert(0, OnlyRayDefault())
    importlib.import_module(module)
print(importlib.import_module("ray_multicluster_scheduler").__file__)
"""


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """Return a directory with what travels with a job, as Ray unpacks it on a node."""
    packages = PackageStore(tmp_path / "packages")
    archive = packages.path(OwnPackage(packages).name())
    assert archive is not None
    zipfile.ZipFile(archive).extractall(tmp_path / "node")
    return tmp_path / "node"


def test_every_function_of_the_api_imports_on_a_cluster_that_has_only_ray(unpacked: Path) -> None:
    modules = [
        "ray_multicluster_scheduler.app.client_api",
        "ray_multicluster_scheduler.aio",
        "ray_multicluster_scheduler.client.current",
        "ray_multicluster_scheduler.client.job_functions",
        "ray_multicluster_scheduler.config.load",
        "ray_multicluster_scheduler.tasks.submitter",
        "ray",
        *(
            f"ray_multicluster_scheduler.tasks.wire.{path.stem}"
            for path in (unpacked / "ray_multicluster_scheduler/tasks/wire").glob("[!_]*.py")
        ),
    ]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *modules],
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(unpacked)


def test_what_travels_is_small_and_holds_no_door_and_no_store(unpacked: Path) -> None:
    package = unpacked / "ray_multicluster_scheduler"
    folders = {path.name for path in package.iterdir() if path.is_dir()}
    assert {"app", "client", "tasks"} <= folders
    assert not folders & {"cli", "dashboard", "engine", "server", "store", "testing"}
    assert {path.suffix for path in package.rglob("*") if path.is_file()} <= {".py", ".typed"}


def test_a_package_that_was_removed_from_the_store_is_packed_again(tmp_path: Path) -> None:
    packages = PackageStore(tmp_path)
    own = OwnPackage(packages)
    name = own.name()
    packages.remove(name, unused_for_s=-1)
    assert packages.path(name) is None
    assert own.name() == name
    assert packages.path(name) is not None


def test_it_comes_first_once_and_can_be_taken_out_again() -> None:
    env = {"py_modules": ["gcs://mine.zip"], "env_vars": {"A": "1"}}
    shipped = with_own_package(with_own_package(env, URI), URI)
    assert shipped == {"py_modules": [URI, "gcs://mine.zip"], "env_vars": {"A": "1", PACKAGE_VAR: URI}}
    assert without_own_package(shipped) == env
    assert without_own_package({"conda": "ts"}) == {"conda": "ts"}


def test_a_container_image_takes_no_package() -> None:
    assert takes_own_package({"conda": "ts"})
    assert not takes_own_package({"image_uri": "registry.example.org/team/image"})


def test_another_package_of_the_same_name_on_the_path_is_found(tmp_path: Path) -> None:
    older = tmp_path / "checkout"
    (older / PACKAGE_NAME).mkdir(parents=True)
    (older / PACKAGE_NAME / "__init__.py").touch()
    path = os.pathsep.join(["", str(tmp_path), str(ROOT.parent), str(older)])
    assert others_on_path({"PYTHONPATH": path}) == [str(older)]
    assert others_on_path({}) == []
