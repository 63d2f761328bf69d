"""Attempts that fail, vanish or come back: retried by kind, swept by origin, each told for what it is."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.support.oracle import broken_promises, overlaps, runs_of
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.core.rules import ObserveRules
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import FakeRay
from ray_multicluster_scheduler.testing.fake_cluster import parse_submission

IMPATIENT = {"request_timeout_s": 1.0, "probe_timeout_s": 1.0}


def promises_broken(system: System, *ids: str) -> list[str]:
    return broken_promises(system.scheduler.store, system.ray.values(), ids)


def clusters_of(system: System, job_id: str) -> list[str]:
    return [run.cluster for run in runs_of(system.ray.values(), job_id)]


def attempted(system: System, job_id: str) -> list[tuple[str, str | None]]:
    return [(each.cluster, each.outcome) for each in system.scheduler.store.history.attempts(job_id)]


def start_on_cluster(ray: FakeRay, submission_id: str, metadata: dict[str, str]) -> None:
    """Start a job past the scheduler, as somebody else would."""
    body = {"entrypoint": "sleep 1000", "submission_id": submission_id, "metadata": metadata}
    ray.cluster.submit(parse_submission(body))


@pytest.mark.parametrize(
    ("error_type", "outcome"),
    [
        ("RUNTIME_ENV_SETUP_FAILURE", "ENVIRONMENT"),
        ("JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE", "UNSCHEDULABLE"),
        ("JOB_SUPERVISOR_ACTOR_START_TIMEOUT", "UNSCHEDULABLE"),
    ],
)
async def test_a_cluster_that_cannot_start_the_job_loses_it_to_another_and_does_not_get_it_back(
    tmp_path: Path, error_type: str, outcome: str
) -> None:
    async with System(tmp_path, fake("a", 8), fake("b", 1)) as system:
        system.ray["a"].fail_starts(error_type)
        busy = await system.submit("sleep 3", preferred_cluster="b")
        await system.until(busy, JobState.RUNNING)
        job_id = await system.submit("sleep 0.2", preferred_cluster="a", max_retries=0)
        job = await system.until(job_id, JobState.SUCCEEDED)  # waits for 'b' rather than going back to 'a'
        assert attempted(system, job_id) == [("a", outcome), ("b", "SUCCEEDED")]
        assert (job.infra_failures, job.user_failures, job.avoid) == (1, 0, ("a",))
        await system.finished(busy)
        assert not promises_broken(system, job_id, busy)


async def test_the_only_cluster_gets_the_job_again_until_the_retries_are_used_up(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), max_infra_retries=2) as system:
        system.ray["a"].fail_starts()
        job = await system.until(await system.submit("echo", max_retries=5), JobState.FAILED)
        assert (job.attempt, job.infra_failures, job.user_failures) == (3, 3, 0)
        assert "no retry left (2 of 2)" in job.reason
        assert not promises_broken(system, job.submission_id)


async def test_a_job_whose_supervisor_died_is_tried_again_at_no_cost_for_the_user(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("sleep 2")
        await system.until(job_id, JobState.RUNNING)
        system.ray["a"].kill_supervisor(job_id)
        job = await system.until(job_id, JobState.SUCCEEDED)
        assert attempted(system, job_id) == [("a", "SUPERVISOR"), ("a", "SUCCEEDED")]
        assert (job.infra_failures, job.user_failures) == (1, 0)
        assert not promises_broken(system, job_id)


async def test_a_surprising_failure_that_a_second_read_does_not_confirm_is_not_believed(
    tmp_path: Path,
) -> None:
    async with System(tmp_path, fake("a"), probe_interval_s=3600.0) as system:
        job_id = await system.submit("sleep 2")
        await system.until(job_id, JobState.RUNNING)
        system.ray["a"].misreport(job_id, times=1)
        job = await system.until(job_id, JobState.SUCCEEDED)
        assert system.ray["a"].jobs[job_id].misreports == 0
        assert (job.attempt, clusters_of(system, job_id)) == (1, ["a"])
        assert not promises_broken(system, job_id)


async def test_a_record_that_was_deleted_before_it_was_read_is_an_unknown_outcome_not_a_rerun(
    tmp_path: Path,
) -> None:
    async with System(tmp_path, fake("a"), fake("b"), **IMPATIENT) as system:
        job_id = await system.submit("sleep 2", preferred_cluster="a")
        await system.until(job_id, JobState.RUNNING)
        system.ray["a"].hang()
        await eventually(lambda: system.ray["a"].jobs[job_id].status.final)
        system.ray["a"].cluster.delete(job_id)
        system.ray["a"].resume()
        job = await system.until(job_id, JobState.FAILED)
        assert "no longer knows it" in job.reason
        assert "may have done its work" in job.reason
        assert clusters_of(system, job_id) == ["a"]
        assert not promises_broken(system, job_id)


async def test_a_job_that_ray_neither_starts_nor_stops_is_let_go_and_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = ObserveRules(stop_grace_s=0.3)
    monkeypatch.setattr("ray_multicluster_scheduler.engine.leader.ObserveRules", lambda **_: impatient)
    async with System(tmp_path, fake("a"), probe_interval_s=3600.0) as system:
        await system.finished(await system.submit("echo"))
        await eventually(
            lambda: system.ray["a"].calls["GET /api/cluster_status"] == 2
        )  # with each probe and end
        system.ray["a"].use({"CPU": 4})  # nobody has told us yet
        job_id = await system.submit("sleep 1000", entrypoint_num_cpus=1)
        await system.until(job_id, JobState.SUBMITTED)
        system.scheduler.service.stop([job_id])
        job = await system.until(job_id, JobState.STOPPED)
        assert "still lists it as PENDING" in job.reason
        system.ray["a"].use({})
        await eventually(lambda: system.ray["a"].jobs[job_id].status == "STOPPED")
        assert not clusters_of(system, job_id)
        assert not promises_broken(system, job_id)


async def test_what_carries_our_origin_and_was_given_up_is_stopped(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("echo done")
        await system.until(job_id, JobState.SUCCEEDED)
        system.ray["a"].cluster.delete(job_id)
        origin = {"raymc.origin": system.scheduler.store.store_id, "raymc.job": job_id, "raymc.attempt": "1"}
        start_on_cluster(system.ray["a"], job_id, origin)  # as a submit that was executed very late
        await eventually(lambda: system.ray["a"].jobs[job_id].status == "STOPPED")
        await eventually(lambda: "found alive on 'a' after it was given up" in system.reasons(job_id))
        assert system.scheduler.store.jobs.get(job_id).state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"raymc.origin": "another store", "raymc.job": "x"},
        {"raymc.origin": "OURS", "raymc.job": "unknown"},
    ],
    ids=["a stranger's", "another scheduler's", "ours, but unknown to the store"],
)
async def test_what_the_store_does_not_know_is_never_touched(
    tmp_path: Path, metadata: dict[str, str]
) -> None:
    async with System(tmp_path, fake("a")) as system:
        ours = system.scheduler.store.store_id
        given = {key: ours if value == "OURS" else value for key, value in metadata.items()}
        start_on_cluster(system.ray["a"], "x", given)
        probes = system.ray["a"].calls["GET /api/jobs/"]
        await eventually(lambda: system.ray["a"].calls["GET /api/jobs/"] > probes + 3)
        await system.finished(await system.submit("echo"))
        assert not system.ray["a"].jobs["x"].stop_requested
        assert system.ray["a"].calls["POST /api/jobs/{id}/stop"] == 0


async def test_a_leader_that_was_paused_does_not_stop_the_jobs_of_its_successor(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), lease_ttl_s=4.0) as system:
        first = await system.submit("sleep 3")
        await system.until(first, JobState.RUNNING)
        ray, store = system.ray["a"], system.scheduler.store
        assert system.scheduler._engine is not None
        loop, _, _ = system.scheduler._engine._ready.result()
        paused = asyncio.Event()
        loop.call_soon_threadsafe(_block_until, paused)
        lease = store.leases.current(now=system.scheduler.clock.now())
        assert lease is not None
        await eventually(lambda: store.leases.current(now=system.scheduler.clock.now()) is None)
        system.scheduler, old = system.another_scheduler(), system.scheduler
        system.scheduler.start()
        second = await system.submit("sleep 3")
        await system.until(second, JobState.RUNNING)
        paused.set()
        done = await system.finished(first, second)
        assert {job.state for job in done.values()} == {JobState.SUCCEEDED}
        assert ray.calls["POST /api/jobs/{id}/stop"] == 0
        assert not promises_broken(system, first, second)
        await asyncio.to_thread(old.stop)
        await asyncio.to_thread(system.scheduler.stop)


def _block_until(event: asyncio.Event) -> None:
    """Keep a whole event loop from running, as a stopped process does."""
    while not event.is_set():
        time.sleep(0.01)


async def test_user_failures_and_infrastructure_failures_have_budgets_of_their_own(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), max_infra_retries=1) as system:
        job_id = await system.submit("sleep 1.5; exit 3", max_retries=1)
        await system.until(job_id, JobState.RUNNING)
        system.ray["a"].kill_supervisor(job_id)
        job = await system.until(job_id, JobState.FAILED)
        assert (job.attempt, job.infra_failures, job.user_failures) == (3, 1, 2)
        assert overlaps(runs_of(system.ray.values(), job_id)) == 0
        assert not promises_broken(system, job_id)


async def test_a_job_that_no_longer_fits_where_it_was_placed_goes_elsewhere(tmp_path: Path) -> None:
    """The configuration was changed while nobody ran, after the job was placed and before it was sent."""
    crashes = [RuntimeError("the process ends here")]

    def crash(point: str) -> None:
        if point == "send:before-upload" and crashes:
            raise crashes.pop()

    async with System(tmp_path, fake("a"), fake("b"), crash_point=crash) as system:
        job_id = await system.submit("echo", runtime_env={"pip": ["emoji"]}, preferred_cluster="a")
        await eventually(lambda: not crashes)
        await asyncio.to_thread(system.scheduler.stop)
        system.scheduler = system.another_scheduler(clusters={"a": {"runtime_env": {"image_uri": "image"}}})
        system.scheduler.start()
        await system.until(job_id, JobState.SUCCEEDED)
        assert system.runs(job_id) == ["b"]
        assert "cluster 'a' with this job's runtime_env: image_uri" in system.reasons(job_id)
        await asyncio.to_thread(system.scheduler.stop)
