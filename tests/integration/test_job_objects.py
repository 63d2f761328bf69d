"""A job as an object, in the process of the program and over HTTP: fake clusters that run real commands."""

import asyncio
import copy
import json
import os
import pickle
import sys
import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from rich.text import Text
from tests.integration.programs import run_program
from tests.support.pages import DOCS, blocks
from tests.support.raymc import write_config
from tests.support.serving import DOORS, opened
from tests.support.system import FAST, fake

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler import Job, JobInfo, Jobs, aio
from ray_multicluster_scheduler.client import job as job_module
from ray_multicluster_scheduler.errors import InvalidRequest, JobNotFound, JobsFailed, WaitTimeout
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import ShellRunner

FAILS = "echo before; exit 3"


@pytest.fixture(params=DOORS)
async def _clusters(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    async with fake("a", 4, runner=ShellRunner()) as a, fake("b", 2, runner=ShellRunner()) as b:
        config = write_config(tmp_path, [a.spec(), b.spec()], **FAST)
        async with opened(request.param, config) as variables:
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            yield
            await asyncio.to_thread(raymc.get_unified_scheduler().stop)


pytestmark = pytest.mark.usefixtures("_clusters")


async def test_it_is_a_string_for_every_program_that_takes_one() -> None:
    job = await asyncio.to_thread(raymc.submit_job, "echo hi", submission_id="mine")
    assert isinstance(job, Job)
    assert isinstance(job, str)
    assert job == "mine"
    assert {job: 1}["mine"] == 1
    assert f"{job}|{job:>6}|{job!r}" == "mine|  mine|'mine'"
    assert json.loads(json.dumps({"id": job, job: 1})) == {"id": "mine", "mine": 1}
    assert yaml.safe_load(yaml.safe_dump([job])) == ["mine"]
    for same in (pickle.loads(pickle.dumps(job)), copy.deepcopy(job), str(job)):
        assert type(same) is str  # so that a program without this package reads it
        assert same == job


async def test_it_tells_where_it_is_and_how_it_ended() -> None:
    before = datetime.now().astimezone()
    job = await asyncio.to_thread(raymc.submit_job, "echo one; echo two")
    assert await asyncio.to_thread(job.wait) is job

    def look() -> None:
        assert (job.status, job.state, job.done) == ("SUCCEEDED", JobState.SUCCEEDED, True)
        assert job.cluster in {"a", "b"}
        assert [attempt.cluster for attempt in job.attempts] == [job.cluster]
        assert job.started_at is not None
        assert job.ended_at is not None
        assert job.submitted_at.tzinfo is not None
        assert before - timedelta(seconds=1) < job.submitted_at
        assert job.submitted_at <= job.ended_at
        assert job.logs().endswith("\none\ntwo\n")
        assert job.logs(tail=1) == "two\n"
        assert list(job.follow()) == job.logs().splitlines()
        assert job.summary().startswith(f"{job} SUCCEEDED on {job.cluster} after ")
        assert job.info()["submission_id"] == job
        assert "SUCCEEDED" in job._repr_html_()
        assert raymc.job(str(job)) == job
        told = job.explain()
        assert told.cluster == job.cluster
        assert str(told).startswith(f"{job} SUCCEEDED: ")
        assert f"Placed on {job.cluster}: " in str(told)
        assert repr(told) == str(told)

    await asyncio.to_thread(look)


async def test_what_is_known_of_a_job_is_a_dict_whose_keys_are_attributes() -> None:
    job = await asyncio.to_thread(raymc.submit_job, "echo hi; exit 3", job_id="nightly", submission_id="mine")
    with pytest.raises(JobsFailed):
        await job
    info = await asyncio.to_thread(raymc.get_job_info, job)
    plain = dict(info)
    assert isinstance(info, JobInfo)
    assert (info, type(plain), json.loads(json.dumps(info))) == (plain, dict, plain)
    assert (type(pickle.loads(pickle.dumps(info))), copy.deepcopy(info)) == (dict, plain)
    assert (yaml.safe_load(yaml.safe_dump(info)), repr(info), {**info}) == (plain, repr(plain), plain)
    assert all(getattr(info, key) == info[key] == info.get(key) for key in info)
    assert "exit_code" in dir(info)
    with pytest.raises(AttributeError, match="a job has no 'exitcode'; did you mean 'exit_code'"):
        _ = info.exitcode  # type: ignore[attr-defined]
    assert not hasattr(info, "_ipython_display_")
    printed = str(info).splitlines()
    assert printed[0] == f"mine FAILED on {info.cluster}"
    assert [line[2:12].strip() for line in printed[1:] if line[2:3].strip()] == [
        *("name", "command", "why", "exit code", "user", "submitted", "started", "ended", "attempts", "log")
    ]
    assert printed[-1].strip() == "hi"
    assert "FAILED" in info._repr_html_()
    del info["state"], info["logs"]
    info["job_id"] = None
    assert str(info).startswith("mine None on ")


async def test_a_job_that_nobody_knows() -> None:
    def look() -> None:
        assert Job("nobody").status == "UNKNOWN"
        assert Job("nobody").stop() is False
        with pytest.raises(JobNotFound, match="nobody"):
            _ = Job("nobody").state
        with pytest.raises(JobNotFound, match="nobody"):
            raymc.job("nobody")

    await asyncio.to_thread(look)


async def test_a_failed_job_raises_where_it_is_waited_for_and_can_run_again() -> None:
    job = await asyncio.to_thread(raymc.submit_job, FAILS)
    with pytest.raises(JobsFailed, match=r"(?s)FAILED on .*before"):
        await job
    again = await asyncio.to_thread(job.retry)
    assert isinstance(again, Job)
    assert again != job
    with pytest.raises(JobsFailed):
        await asyncio.to_thread(again.wait)


async def test_a_wait_ends_in_time_and_the_job_goes_on_until_it_is_stopped() -> None:
    job = await asyncio.to_thread(raymc.submit_job, "sleep 1000")
    with pytest.raises(WaitTimeout):
        await asyncio.to_thread(job.wait, 0.2)
    assert await asyncio.to_thread(job.stop) is True
    assert await asyncio.to_thread(lambda: job.status) == "STOPPED"


async def test_several_are_counted_waited_for_and_told_as_they_end() -> None:
    jobs = await asyncio.to_thread(
        raymc.submit_jobs, [{"entrypoint": "echo 1"}, {"entrypoint": FAILS}, {"entrypoint": "echo 3"}]
    )
    assert isinstance(jobs, Jobs)
    assert all(isinstance(job, Job) for job in jobs)
    assert yaml.safe_load(yaml.safe_dump(jobs)) == jobs

    def look() -> None:
        assert set(jobs.as_completed()) == set(jobs)
        assert jobs.counts() == {"SUCCEEDED": 2, "FAILED": 1}
        assert jobs.done
        assert jobs.failed == [jobs[1]]
        assert jobs.summary() == "1 FAILED, 2 SUCCEEDED"
        with pytest.raises(JobsFailed, match=str(jobs[1])):
            jobs.wait()
        (again,) = jobs.retry()
        assert again not in jobs
        assert "FAILED" in jobs._repr_html_()

    await asyncio.to_thread(look)
    with pytest.raises(JobsFailed):
        await jobs


async def test_many_are_stopped_at_once() -> None:
    jobs = await asyncio.to_thread(raymc.submit_jobs, [{"entrypoint": "sleep 1000"}] * 5)

    def stop() -> None:
        assert jobs.stop() == 5
        assert [job.status for job in jobs.as_completed()] == ["STOPPED"] * 5
        assert jobs.stop() == 0
        assert Jobs().wait() == []
        assert list(Jobs().as_completed()) == []

    await asyncio.to_thread(stop)


async def test_jobs_are_found_by_what_one_remembers_of_them() -> None:
    def look() -> None:
        one, two = raymc.submit_jobs(
            [{"entrypoint": "echo first", "job_id": "nightly"}, {"entrypoint": FAILS}]
        )
        list(Jobs([one, two]).as_completed())
        assert raymc.jobs() == [two, one]
        assert raymc.jobs(state="succeeded") == [one]
        assert raymc.jobs(state=["FAILED", JobState.STOPPED]) == [two]
        assert raymc.jobs(name="nightly") == [one]
        assert raymc.job("nightly") == one
        assert raymc.jobs(text="first") == [one]
        assert raymc.jobs(limit=1) == [two]
        for since in (
            "1h",
            timedelta(hours=1),
            datetime.now().astimezone() - timedelta(hours=1),
            time.time() - 3600,
        ):
            assert raymc.jobs(since=since) == [two, one]
            assert [each["submission_id"] for each in raymc.list_jobs(since=since, text="first")] == [one]
        assert raymc.jobs(since=time.time() + 60) == []
        assert raymc.list_clusters() == ["a", "b"]
        assert raymc.get_job_logs("nightly", tail=1) == "first\n"
        with pytest.raises(InvalidRequest, match="unknown state 'done'; use one of"):
            raymc.jobs(state="done")
        for wrong, name in (({"since": "yesterday"}, "since: 'yesterday'"), ({"state": 5}, "state must be")):
            with pytest.raises(InvalidRequest, match=name):
                raymc.jobs(**wrong)
        with pytest.raises(InvalidRequest, match="tail must be a whole number"):
            one.logs("all")
        with pytest.raises(InvalidRequest, match="no time zone"):
            raymc.jobs(since=datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake that is refused

    await asyncio.to_thread(look)


async def test_what_is_shown_meanwhile_is_a_table_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = await asyncio.to_thread(raymc.submit_jobs, [{"entrypoint": "echo 1"}] * 3)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert await asyncio.to_thread(jobs.wait) is jobs
    assert "3 jobs: 3 SUCCEEDED" in Text.from_ansi(capsys.readouterr().err).plain
    assert await asyncio.to_thread(lambda: jobs.wait(progress=False)) is jobs
    assert capsys.readouterr().err == ""


async def test_what_is_shown_meanwhile_in_a_notebook_is_a_table_that_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[tuple[str, str, bool]] = []

    class Shell:
        """What a notebook's kernel offers, as far as it is used."""

        kernel = display_pub = None

        def publish(self, data: dict[str, str], *, transient: dict[str, str], update: bool) -> None:
            shown.append((data["text/html"], transient["display_id"], update))

    shell = Shell()
    shell.display_pub = shell
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    jobs = await asyncio.to_thread(raymc.submit_jobs, [{"entrypoint": "echo 1"}] * 3)
    for wait in (jobs.wait, lambda: raymc.wait_for_all_jobs(jobs)):
        shown.clear()
        await asyncio.to_thread(wait)
        assert shown[0][2] is False
        assert all(update for _, _, update in shown[1:])
        assert len({name for _, name, _ in shown}) == 1
        assert "3 jobs" in shown[-1][0]
        assert "SUCCEEDED" in shown[-1][0]


def test_lines_are_whole_whatever_the_pieces_are() -> None:
    assert list(job_module._lines(["a", "b\nc", "\n", "d"])) == ["ab", "c", "d"]
    assert list(job_module._lines([])) == []


async def test_the_same_for_asyncio() -> None:
    job = await aio.submit_job("echo hi", submission_id="mine")
    assert (job, f"{job}", type(pickle.loads(pickle.dumps(job)))) == ("mine", "mine", str)
    assert yaml.safe_load(yaml.safe_dump(job)) == "mine"
    assert await job is job
    assert (await job.status, await job.state, await job.done) == ("SUCCEEDED", JobState.SUCCEEDED, True)
    assert (await job.logs()).endswith("\nhi\n")
    assert [line async for line in job.follow()] == (await job.logs()).splitlines()
    assert (await job.explain()).cluster == await job.cluster
    assert (await job.summary()).startswith("mine SUCCEEDED on ")
    assert await aio.job("mine") == job
    jobs = await aio.submit_jobs([{"entrypoint": "echo 1"}, {"entrypoint": FAILS}])
    assert {ended async for ended in jobs.as_completed()} == set(jobs)
    assert await jobs.failed == [jobs[1]]
    assert await jobs.counts() == {"SUCCEEDED": 1, "FAILED": 1}
    with pytest.raises(JobsFailed):
        await jobs
    (again,) = await jobs.retry()
    assert isinstance(again, aio.Job)
    assert await aio.jobs(limit=1) == [again]
    assert await again.stop() in {True, False}


async def test_the_programs_of_the_page_run() -> None:
    shown = blocks("python", pages=[DOCS / "python.md"])
    assert [block.text for block in shown] == [
        block.text for block in blocks("python", pages=[DOCS / "python.zh-CN.md"])
    ]
    # Actors need real clusters: tests/docs/test_programs_run.py.
    of_jobs = [block.text for block in shown if "submit_actor_pool(" not in block.text]
    ended = [await run_program(text, os.environ) for text in of_jobs]
    assert [each.code for each in ended] == [0] * 5, ended
    printed = [each.out for each in ended]
    assert "\nhello\n" in printed[0]
    assert printed[0].endswith(" SUCCEEDED\n")
    assert "Counter({'SUCCEEDED': 8}) failed: []\n[]\n[]\n" in printed[1]
    assert printed[2].endswith("0.25\n")
    assert printed[3].endswith("{'loss': 0.25, 'steps': [1, 2]}\n")
    assert "\nhello\n" in printed[4]
