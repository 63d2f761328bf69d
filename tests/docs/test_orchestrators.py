"""The programs of the pages about Airflow and Dagster that use Ray's own client, run against a server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.pages import DOCS, blocks
from tests.support.serving import live
from tests.support.system import System, fake

from ray_multicluster_scheduler.server.app import create_app

ADDRESS, PAUSE = "http://127.0.0.1:8700", "time.sleep(5)"
LANGUAGES = ("", ".zh-CN")


def program(page: str, address: str) -> dict[str, Any]:
    """Run the one program of a page with another address, and return what it defines."""
    (block,) = blocks("python", pages=[DOCS / "how-to" / page])
    assert block.text.count(ADDRESS) == 1
    defined: dict[str, Any] = {}
    exec(block.text.replace(ADDRESS, address).replace(PAUSE, "time.sleep(0.1)"), defined)
    return defined


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "train"
    folder.mkdir()
    (folder / "train.py").write_text("print('trained')\n")
    return folder


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_task_of_airflow_runs_a_job_and_fails_with_its_message(
    tmp_path: Path, folder: Path, language: str
) -> None:
    async with System(tmp_path, fake("a")) as system:
        with live(create_app(system.scheduler)) as address:
            run_ray_job = program(f"airflow{language}.md", address)["run_ray_job"]
            metadata = {"raymc.priority": "5", "raymc.queue_timeout": "14400"}
            env = {"working_dir": str(folder)}
            log = await asyncio.to_thread(run_ray_job, "echo trained", runtime_env=env, metadata=metadata)
            assert "trained" in log
            (job,) = system.scheduler.store.jobs.list()
            assert (job.spec.priority, job.spec.queue_timeout_s) == (5, 14400)
            with pytest.raises(RuntimeError, match="exit code 3"):
                await asyncio.to_thread(run_ray_job, "exit 3")


async def test_a_job_is_submitted_as_the_operator_of_the_ray_provider_does_it(tmp_path: Path) -> None:
    """It passes zeros and None for what its user does not say."""
    nothing = {
        "entrypoint_num_cpus": 0,
        "entrypoint_num_gpus": 0,
        "entrypoint_memory": 0,
        "entrypoint_resources": None,
    }
    async with System(tmp_path, fake("a")) as system:
        with live(create_app(system.scheduler)) as address:
            run_ray_job = program("airflow.md", address)["run_ray_job"]
            log = await asyncio.to_thread(run_ray_job, "echo trained", runtime_env={}, **nothing)
            assert "trained" in log


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # Ray's own client
@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_asset_of_dagster_streams_the_log_of_its_job(tmp_path: Path, language: str) -> None:
    async with System(tmp_path, fake("a")) as system:
        with live(create_app(system.scheduler)) as address:
            jobs = await asyncio.to_thread(program(f"dagster{language}.md", address)["RayJobs"])
            said: list[str] = []
            done = await asyncio.to_thread(jobs.run, "echo trained; sleep 0.3", say=said.append)
            assert "trained" in "".join(said)
            assert system.scheduler.store.jobs.get(done).state.value == "SUCCEEDED"
            with pytest.raises(RuntimeError, match="exit code 3"):
                await asyncio.to_thread(jobs.run, "exit 3", say=said.append)


def test_both_languages_show_the_same_programs() -> None:
    for page in ("airflow", "dagster"):
        english, chinese = (
            blocks("python", "text", pages=[DOCS / "how-to" / f"{page}{language}.md"])
            for language in LANGUAGES
        )
        assert [block.text for block in english] == [block.text for block in chinese]
