"""What programs are told: log lines that say where and why, warnings at the user's own line, one sentence."""

import asyncio
import logging
import warnings
from pathlib import Path

import pytest
from tests.support.system import System, fake
from tests.support.waiting import eventually

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler.client import job_functions
from ray_multicluster_scheduler.errors import InvalidRequest, NeverFits
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.request import JobRequest

SECRET = "very-secret-3"
_ON_CLUSTER = (JobState.SUBMITTED, JobState.RUNNING)


async def test_the_log_tells_where_a_job_went_why_how_it_ended_and_which_call_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="ray_multicluster_scheduler")
    async with System(tmp_path, fake("a"), fake("b", 1)) as system:
        env = {"env_vars": {"API_TOKEN": SECRET}}
        job_id = await system.submit(
            "exit 3", job_id="nightly", runtime_env=env, resource_requirements={"CPU": 2}
        )
        await system.finished(job_id)
        await system.ray["b"].go_dark()
        await eventually(lambda: "b: GET" in caplog.text and ": no answer after" in caplog.text)
    info = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    placed, ended = (
        next(line for line in info if f"job {job_id} (nightly): {state} on 'a': " in line)
        for state in ("PLACED", "FAILED")
    )
    assert "placed on 'a'" in placed
    assert "exit code 3" in ended
    assert "not 'b': " in caplog.text
    assert "a: POST /api/jobs/: 200 after" in caplog.text
    assert SECRET not in caplog.text


async def test_a_misspelt_cluster_is_warned_of_at_the_line_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with System(tmp_path, fake("mac")) as system:
        request = JobRequest(entrypoint="echo", user="ann", preferred_cluster="moc")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            # Beside this loop, on which the cluster answers.
            (job,) = await asyncio.to_thread(system.scheduler.service.submit, [request])
        assert not told  # a server has nobody to warn: the answer carries it
        (sentence,) = job.warnings
        assert "did you mean 'mac'?" in sentence
        monkeypatch.setattr(job_functions, "working_scheduler", lambda: system.scheduler)
        jobs = [{"entrypoint": "echo", "preferred_cluster": "moc"}] * 2
        with pytest.warns(UserWarning, match="did you mean 'mac'") as told:
            await asyncio.to_thread(lambda: raymc.submit_jobs(jobs))
    (warning,) = told
    assert warning.filename == __file__


async def test_a_list_as_entrypoint_and_small_letters_are_answered_with_what_to_write(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        with pytest.raises(InvalidRequest, match=r"write 'python \S+'"):
            await system.submit(["python", "x"])  # type: ignore[arg-type]
        with pytest.raises(NeverFits, match="did you mean 'CPU'"):
            await system.submit("echo", resource_requirements={"cpu": 1})


async def test_explain_says_in_one_sentence_where_a_job_is_and_why(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", 1)) as system:
        first = await system.submit("sleep 1000")
        await system.until(first, *_ON_CLUSTER)
        second = await system.submit("sleep 1000")
        explain = system.scheduler.service.explain
        assert explain(first).why.startswith("on 'a': ")
        why = await asyncio.to_thread(explain, second)
        assert why.why.startswith("'a': needs 1 CPU")
        system.scheduler.service.stop([second])  # first: it must not get the other one's room
        await system.finished(second)
        assert explain(second).why == "stopped by the user"
