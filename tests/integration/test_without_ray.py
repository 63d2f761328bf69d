"""Jobs need no Ray on the machine that submits them, and the client of a server needs little else."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.programs import run_program
from tests.support.raymc import write_config
from tests.support.serving import DOORS, IN_PROCESS, OVER_HTTP, opened
from tests.support.system import FAST, fake

#: In front of a program: what cannot be imported in its process.
REFUSING = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}: not installed here", name=name)

sys.meta_path.insert(0, Refuse())
"""
ONLY_THE_SERVER_NEEDS = (
    "ray",
    "sqlalchemy",
    "alembic",
    "aiohttp",
    "numpy",
    "fastapi",
    "uvicorn",
    "typer",
    "rich",
)


@pytest.fixture
async def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    async with fake("a", 4) as ray:
        yield write_config(tmp_path, [ray.spec()], **FAST)


def program(refused: tuple[str, ...], text: str) -> str:
    return REFUSING.format(refused=set(refused)) + text


JOBS = """
import os, sys, tempfile
import ray_multicluster_scheduler as raymc
from pathlib import Path

code = Path(tempfile.mkdtemp())
(code / "main.py").write_text("print(1)")
job = raymc.submit_job("echo one", runtime_env={"working_dir": str(code), "pip": ["six"]}, job_id="first")
assert raymc.wait_for_all_jobs([job])
assert raymc.get_job_status("first") == "SUCCEEDED"
assert "one" in raymc.get_job_info(job)["logs"]
assert "one" in "".join(raymc.tail_job_logs(job))
assert [row["submission_id"] for row in raymc.list_jobs()] == [job]
assert raymc.plan_job("echo two")["cluster"] == "a"
assert raymc.explain(job)["why"]
sleeping = raymc.submit_job("sleep 600")
assert raymc.stop_job(sleeping) is True
bad = raymc.submit_job("exit 3")
try:
    raymc.wait_for_all_jobs([bad])
except RuntimeError as error:
    assert bad in str(error)
try:
    raymc.get_job_info("nobody")
except LookupError:
    print("all is well")
"""


@pytest.mark.parametrize(("door", "refused"), [(IN_PROCESS, ("ray",)), (OVER_HTTP, ONLY_THE_SERVER_NEEDS)])
async def test_jobs_are_submitted_and_followed_without(
    config: Path, door: str, refused: tuple[str, ...]
) -> None:
    async with opened(door, config) as variables:
        ended = await run_program(
            program(refused, JOBS),
            {**variables, "RAY_MULTICLUSTER_HOME": os.environ["RAY_MULTICLUSTER_HOME"]},
        )
    assert (ended.code, ended.out) == (0, "all is well\n"), ended.err


IN_ASYNCIO = """
import asyncio
from ray_multicluster_scheduler import aio

async def main():
    job = await aio.submit_job("echo one")
    await aio.wait_for_all_jobs([job])
    print("".join([piece async for piece in aio.tail_job_logs(job)]).splitlines()[-1])

asyncio.run(main())
"""


async def test_asyncio_needs_one_library_more(config: Path) -> None:
    refused = tuple(name for name in ONLY_THE_SERVER_NEEDS if name != "aiohttp")
    async with opened(OVER_HTTP, config) as variables:
        ended = await run_program(program(refused, IN_ASYNCIO), variables)
    assert (ended.code, ended.out) == (0, "one\n"), ended.err


HIDING = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "ray" else found(name, package)
"""
WHAT_NEEDS_RAY = """
import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler.cli.main import main

def needs(call):
    try:
        call()
    except ValueError as error:
        print(error)

needs(lambda: raymc.submit_task(print))
needs(lambda: raymc.submit_actor(dict))
needs(lambda: raymc.init_ray)
sys.argv = ["raymc", "local", "up"]
main()
"""


@pytest.mark.parametrize("door", DOORS)
async def test_what_needs_ray_says_in_one_sentence_how_to_get_it(config: Path, door: str) -> None:
    async with opened(door, config) as variables:
        more = {"RAY_MULTICLUSTER_HOME": os.environ["RAY_MULTICLUSTER_HOME"]}
        ended = await run_program(
            program(("ray",), HIDING + WHAT_NEEDS_RAY),
            {**variables, "RAY_MULTICLUSTER_CONFIG": str(config), **more},
        )
    said = [*ended.out.splitlines(), ended.err]
    assert ended.code == 2
    for words, extra in zip(said, ("tasks", "tasks", "tasks", "ray"), strict=True):
        assert f"pip install '.[{extra}]' in the clone" in " ".join(words.split())
    assert "Traceback" not in ended.err
