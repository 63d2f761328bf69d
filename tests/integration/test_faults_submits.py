"""A submit whose outcome is unknown is looked up by its id, and never sent under another one."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.oracle import broken_promises, runs_of
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import FakeRay
from ray_multicluster_scheduler.testing.fake_cluster import parse_submission

IMPATIENT = {"request_timeout_s": 1.0, "probe_timeout_s": 1.0}
SUBMIT = "POST /api/jobs/"


def promises_broken(system: System, *ids: str) -> list[str]:
    return broken_promises(system.scheduler.store, system.ray.values(), ids)


def clusters_of(system: System, job_id: str) -> list[str]:
    return [run.cluster for run in runs_of(system.ray.values(), job_id)]


def remote_ids(system: System, job_id: str) -> list[str]:
    return [attempt.remote_id for attempt in system.scheduler.store.history.attempts(job_id)]


def break_next_post(ray: FakeRay, breakage: str) -> None:
    """Break the answer to the next submit."""
    match breakage:
        case "reply lost":
            ray.lose_reply(only=SUBMIT)
        case "half an answer":
            ray.garbage(only=SUBMIT, kind="cut")
        case "a page of HTML":
            ray.garbage(only=SUBMIT)
        case "a server error":
            ray.fail(500, times=1, only=SUBMIT)
        case "a proxy without backend":
            ray.fail(404, times=1, only=SUBMIT)
        case "too many requests":
            ray.fail(429, times=1, only=SUBMIT)


@pytest.mark.parametrize(
    "breakage",
    [
        "reply lost",
        "half an answer",
        "a page of HTML",
        "a server error",
        "a proxy without backend",
        "too many requests",
    ],
)
async def test_a_broken_answer_to_a_submit_causes_one_run_under_one_id(tmp_path: Path, breakage: str) -> None:
    async with System(tmp_path, fake("a"), probe_interval_s=3600.0) as system:
        await system.finished(await system.submit("echo the first probe is over"))
        break_next_post(system.ray["a"], breakage)
        job_id = await system.submit("sleep 0.3")
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a"]
        assert remote_ids(system, job_id) == [job_id]
        assert not promises_broken(system, job_id)


async def test_a_submit_that_timed_out_and_is_executed_later_runs_once(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), **IMPATIENT, probe_interval_s=3600.0) as system:
        frozen = system.ray["a"]
        await system.finished(await system.submit("echo the first probe is over"))
        frozen.hang()
        job_id = await system.submit("sleep 0.3")
        await eventually(lambda: frozen.calls[SUBMIT] == 2)
        await system.until(job_id, JobState.UNREACHABLE)
        assert not clusters_of(system, job_id)
        frozen.resume()
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a"]
        assert remote_ids(system, job_id) == [job_id]
        assert not promises_broken(system, job_id)


async def test_a_job_that_may_have_arrived_is_not_started_elsewhere_because_a_connection_fails(
    tmp_path: Path,
) -> None:
    async with System(tmp_path, fake("a"), fake("b"), **IMPATIENT, lost_after_refused_s=3600) as system:
        frozen = system.ray["a"]
        await system.finished(await system.submit("echo", preferred_cluster="a"))
        system.scheduler.service.set_drained("b", drained=True, reason="only 'a' may have the next job")
        frozen.hang()
        job_id = await system.submit("sleep 0.3")
        await eventually(lambda: frozen.calls[SUBMIT] == 2)
        await system.until(job_id, JobState.UNREACHABLE)
        system.scheduler.service.set_drained("b", drained=False, reason="")
        frozen.resume()
        await frozen.go_dark()
        others = await system.submit_many([{"entrypoint": "sleep 0.1"}] * 4)
        await system.finished(*others)
        assert clusters_of(system, job_id) in ([], ["a"])
        await frozen.come_back()
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a"]
        assert not promises_broken(system, job_id, *others)


async def test_a_cluster_that_refuses_again_and_again_loses_the_job_to_another(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), probe_interval_s=3600.0) as system:
        await system.finished(await system.submit("echo", preferred_cluster="a"))
        system.ray["a"].fail(500, only=SUBMIT)
        job_id = await system.submit("sleep 0.2", preferred_cluster="a")
        job = await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["b"]
        assert (job.infra_failures, job.user_failures, job.avoid) == (1, 0, ("a",))
        assert "refused it 3 times" in system.reasons(job_id)
        assert not promises_broken(system, job_id)


async def test_a_request_that_ray_calls_wrong_is_not_repeated(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), probe_interval_s=3600.0) as system:
        await system.finished(await system.submit("echo the first probe is over"))
        posts = system.ray["a"].calls[SUBMIT]
        system.ray["a"].fail(400, only=SUBMIT)
        job = await system.until(await system.submit("echo"), JobState.FAILED)
        assert "refused for good" in job.reason
        assert system.ray["a"].calls[SUBMIT] == posts + 1


async def test_a_job_that_could_not_be_sent_goes_elsewhere_and_keeps_its_retries(tmp_path: Path) -> None:
    clusters = {name: {"runtime_env": {"env_vars": {"home_dir": f"/home/{name}"}}} for name in ("a", "b")}
    two = System(tmp_path, fake("a"), fake("b"), clusters=clusters, probe_interval_s=3600.0)
    async with two as system:
        await system.finished(await system.submit("echo", preferred_cluster="a"))
        asked = "GET /api/cluster_status"  # by the first probe, and at the end of that job: let it pass
        await eventually(lambda: system.ray["a"].calls[asked] == 2)
        await system.ray["a"].go_dark()
        job_id = await system.submit("sleep 0.2", preferred_cluster="a")
        job = await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["b"]
        sent = system.ray["b"].jobs[remote_ids(system, job_id)[-1]].submission.runtime_env["env_vars"]
        assert (sent["home_dir"], sent["RAY_MULTICLUSTER_CLUSTER"]) == ("/home/b", "b")
        assert (job.infra_failures, job.user_failures) == (0, 0)
        assert [a.outcome for a in system.scheduler.store.history.attempts(job_id)] == [
            "NOT_SENT",
            "SUCCEEDED",
        ]
        assert "connection refused" in system.reasons(job_id)
        assert not promises_broken(system, job_id)


def start_foreign_job(ray: FakeRay, submission_id: str, **more: Any) -> None:
    """Start a job that somebody else submitted to the cluster."""
    body = {"entrypoint": "sleep 1000", "submission_id": submission_id, **more}
    ray.cluster.submit(parse_submission(body))


@pytest.mark.parametrize("answer_lost", [False, True])
async def test_an_id_that_somebody_else_has_taken_is_left_to_him(tmp_path: Path, answer_lost: bool) -> None:
    async with System(tmp_path, fake("a"), probe_interval_s=3600.0) as system:
        ray = system.ray["a"]
        await system.finished(await system.submit("echo the first probe is over"))
        start_foreign_job(ray, "taken")
        await eventually(lambda: ray.jobs["taken"].status == "RUNNING")
        if answer_lost:
            ray.lose_reply(only=SUBMIT)
        await system.submit("sleep 0.2", submission_id="taken")
        job = await system.until("taken", JobState.SUCCEEDED)
        assert remote_ids(system, "taken") == ["taken", "taken--r2"]
        assert "that is not ours" in system.reasons("taken")
        assert (job.infra_failures, job.exit_code) == (0, 0)
        assert ray.jobs["taken"].status == "RUNNING"
        assert not ray.jobs["taken"].stop_requested


async def test_a_foreign_job_under_our_id_is_never_stopped_for_us(tmp_path: Path) -> None:
    # Two CPUs: the foreign job is another scheduler's, so its claim counts as soon as it is seen.
    async with System(tmp_path, fake("a", 2)) as system:
        ray = system.ray["a"]
        job_id = await system.submit("sleep 1000", submission_id="mine")
        await system.until(job_id, JobState.RUNNING)
        await ray.restart()
        start_foreign_job(ray, "mine", metadata={"raymc.origin": "another store", "raymc.job": "mine"})
        await system.until(job_id, JobState.RUNNING)
        await eventually(lambda: "mine--r2" in ray.jobs)
        system.scheduler.service.stop([job_id])
        await system.until(job_id, JobState.STOPPED)
        assert not ray.jobs["mine"].stop_requested


async def test_a_stop_during_a_hanging_submit_leaves_nothing_running(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), **IMPATIENT) as system:
        frozen = system.ray["a"]
        await system.finished(await system.submit("echo the first probe is over"))
        frozen.hang()
        job_id = await system.submit("sleep 1000")
        await eventually(lambda: frozen.calls[SUBMIT] == 2)
        system.scheduler.service.stop([job_id])
        frozen.resume()
        await system.until(job_id, JobState.STOPPED)
        await eventually(lambda: all(run.end for run in frozen.runs))
        await eventually(lambda: not promises_broken(system, job_id))


async def test_a_stop_before_the_submit_sends_nothing(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", 1)) as system:
        first, second = await system.submit_many([{"entrypoint": "sleep 0.5"}, {"entrypoint": "sleep 1000"}])
        await asyncio.to_thread(system.scheduler.service.stop, [second])
        await system.finished(first, second)
        assert system.scheduler.store.jobs.get(second).state is JobState.STOPPED
        assert not clusters_of(system, second)
