"""Local code on a real cluster: what was packed is there, what was excluded is not."""

import json
import uuid
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import a_cluster
from tests.support.trees import a_store, make_tree

from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.local import Head
from ray_multicluster_scheduler.model.execution import AttemptStatus, StartRequest
from ray_multicluster_scheduler.packages.runtime_env import localise, package_names
from ray_multicluster_scheduler.packages.to_cluster import Uploader
from ray_multicluster_scheduler.ray_api import HttpConnection

pytestmark = pytest.mark.ray

#: A loaded machine needs its time to unpack and to install.
PATIENT_S = 60.0


@pytest.fixture
async def connection(real_head: Head) -> AsyncIterator[HttpConnection]:
    spec = a_cluster("real", dashboard=real_head.dashboard)
    async with HttpConnection(spec, request_timeout_s=PATIENT_S) as opened:
        yield opened


async def run(connection: HttpConnection, entrypoint: str, runtime_env: dict[str, Any]) -> Any:
    """Run a job that prints one JSON line with `answer:` before it, and return that."""
    request = StartRequest(
        remote_id=f"packages-{uuid.uuid4().hex[:12]}", entrypoint=entrypoint, runtime_env=runtime_env
    )
    await RayJobsExecutor(connection).start(request)
    log = "".join([piece async for piece in RayJobsExecutor(connection).follow_log(request.remote_id)])
    job = await RayJobsExecutor(connection).get(request.remote_id)
    assert job.status is AttemptStatus.SUCCEEDED, f"{job.message}\n{log}"
    (answer,) = (line for line in log.splitlines() if line.startswith("answer:"))
    return json.loads(answer.removeprefix("answer:"))


LIST_EVERYTHING = """
import json, os, pathlib
here = pathlib.Path.cwd()
found = sorted(str(p.relative_to(here)) + "/" * p.is_dir() for p in here.rglob("*"))
print("answer:" + json.dumps({"found": found, "executable": os.access("bin/run.sh", os.X_OK)}))
"""


async def test_a_working_dir_is_shipped_once_and_without_what_was_excluded(
    connection: HttpConnection, tmp_path: Path
) -> None:
    root = make_tree(
        tmp_path / "code",
        {
            "main.py": LIST_EVERYTHING,
            "bin/run.sh": "#!/bin/sh\n",
            "out/": "",
            "data/large.bin": "left behind",
            "notes.log": "left behind",
            ".gitignore": "*.tmp\n",
            "x.tmp": "left behind",
            ".git/HEAD": "left behind",
            "unique.txt": uuid.uuid4().hex,
        },
    )
    (root / "bin" / "run.sh").chmod(0o755)
    store = a_store(tmp_path)
    wanted = {"working_dir": str(root), "excludes": ["*.log", "data/"]}
    env = localise(wanted, store, cwd=tmp_path)
    uploader = Uploader(connection.packages, store)

    assert await uploader.ensure(package_names(env)) > 0
    answer = await run(connection, "python main.py", env)
    assert answer == {
        "found": [".gitignore", "bin/", "bin/run.sh", "main.py", "out/", "unique.txt"],
        "executable": True,
    }

    again = localise(wanted, store, cwd=tmp_path)
    assert again == env
    assert await uploader.ensure(package_names(again)) == 0


def a_wheel(directory: Path, name: str, code: str) -> Path:
    """Build the smallest wheel that pip installs."""
    path = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, content)
    return path


IMPORT_EVERYTHING = """python -c '
import json, ray, a_package.inner, a_file, a_wheel
ray.init()
@ray.remote
def on_a_worker():
    import a_package.inner, a_file, a_wheel
    return [a_package.inner.WHO, a_file.WHO, a_wheel.WHO]
print("answer:" + json.dumps(ray.get(on_a_worker.remote())))
'"""


async def test_py_modules_can_be_imported_by_the_job_and_by_its_workers(
    connection: HttpConnection, tmp_path: Path
) -> None:
    make_tree(
        tmp_path,
        {
            "libs/a_package/__init__.py": "",
            "libs/a_package/inner.py": "WHO = 'a package'",
            "libs/a_file.py": "WHO = 'a file'",
        },
    )
    wheel = a_wheel(tmp_path, "a_wheel", "WHO = 'a wheel'")
    store = a_store(tmp_path)
    env = localise({"py_modules": ["libs/a_package", "libs/a_file.py", str(wheel)]}, store, cwd=tmp_path)
    await Uploader(connection.packages, store).ensure(package_names(env))

    assert await run(connection, IMPORT_EVERYTHING, env) == ["a package", "a file", "a wheel"]


async def test_an_empty_working_dir_is_an_empty_directory_on_the_cluster(
    connection: HttpConnection, tmp_path: Path
) -> None:
    store = a_store(tmp_path)
    env = localise({"working_dir": str(make_tree(tmp_path / "empty", {}))}, store, cwd=tmp_path)
    await Uploader(connection.packages, store).ensure(package_names(env))
    assert (
        await run(connection, """python -c 'import os; print("answer:%d" % len(os.listdir()))'""", env) == 0
    )
