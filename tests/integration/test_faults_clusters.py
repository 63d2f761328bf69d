"""Clusters that die, hang, flap, restart or turn us away: no job is lost, none runs twice without leave."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.oracle import broken_promises, overlaps, runs_of
from tests.support.system import System, every_port, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.cluster_health.tcp_port import head_ports_here
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import ShellRunner

#: Short deadlines, so that a cluster that hangs is found silent soon.
IMPATIENT = {"request_timeout_s": 1.0, "probe_timeout_s": 1.0}


def promises_broken(system: System, *ids: str, may_overlap: tuple[str, ...] = ()) -> list[str]:
    return broken_promises(system.scheduler.store, system.ray.values(), ids, may_overlap=may_overlap)


def clusters_of(system: System, job_id: str) -> list[str]:
    return [run.cluster for run in runs_of(system.ray.values(), job_id)]


async def running_on(system: System, cluster: str, entrypoint: str = "sleep 2", **request: object) -> str:
    """Accept a job and wait until it runs on this cluster."""
    job_id = await system.submit(entrypoint, preferred_cluster=cluster, **request)
    await system.until(job_id, JobState.RUNNING)
    assert clusters_of(system, job_id) == [cluster]
    return job_id


async def test_a_killed_head_is_evidence_once_everything_refuses_for_long_enough(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b")) as system:
        job_id = await running_on(system, "a")
        await system.ray["a"].kill()
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a", "b"]
        assert system.story(job_id)[3:] == [
            "RUNNING",
            "UNREACHABLE",
            "LOST",
            "QUEUED",
            "PLACED",
            "SUBMITTED",
            "RUNNING",
            "SUCCEEDED",
        ]
        assert "both refused connections" in system.reasons(job_id)
        assert not promises_broken(system, job_id)


async def test_a_restarted_head_has_lost_its_jobs_and_says_so_with_a_new_session(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id = await running_on(system, "a")
        await system.ray["a"].restart()
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a", "a"]
        assert "restarted (new session)" in system.reasons(job_id)
        assert not promises_broken(system, job_id)


async def test_a_head_that_comes_back_before_the_limit_costs_its_jobs_one_attempt_only(
    tmp_path: Path,
) -> None:
    async with System(tmp_path, fake("a"), lost_after_refused_s=3600) as system:
        ids = await system.submit_many([{"entrypoint": "sleep 2"}] * 3)
        await eventually(lambda: len(system.ray["a"].runs) == 3)
        await system.ray["a"].kill()
        await eventually(lambda: all("UNREACHABLE" in system.story(each) for each in ids))
        await system.ray["a"].come_back()
        done = await system.finished(*ids)
        assert {(job.state, job.attempt) for job in done.values()} == {(JobState.SUCCEEDED, 2)}
        assert not promises_broken(system, *ids)


async def test_a_silence_shorter_than_the_limit_changes_nothing(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), unreachable_after_s=3600, **IMPATIENT) as system:
        job_id = await running_on(system, "a")
        system.ray["a"].hang()
        await eventually(lambda: system.ray["a"].runs[0].end)
        system.ray["a"].resume()
        await system.until(job_id, JobState.SUCCEEDED)
        assert system.story(job_id) == ["QUEUED", "PLACED", "SUBMITTED", "RUNNING", "SUCCEEDED"]
        assert clusters_of(system, job_id) == ["a"]


async def test_a_job_that_ends_during_a_silence_keeps_its_result(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), **IMPATIENT) as system:
        job_id = await running_on(system, "a")
        system.ray["a"].hang()
        await system.until(job_id, JobState.UNREACHABLE)
        await eventually(lambda: system.ray["a"].runs[0].end)
        system.ray["a"].resume()
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a"]
        assert "may well be running" in system.reasons(job_id)
        assert not promises_broken(system, job_id)


async def test_on_unreachable_wait_waits_however_long_the_silence_is(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), **IMPATIENT) as system:
        job_id = await running_on(system, "a", "sleep 1000")
        system.ray["a"].hang()
        await system.until(job_id, JobState.UNREACHABLE)
        store = system.scheduler.store
        await eventually(lambda: store.clusters.load_snapshots()["a"].health is Health.UNHEALTHY)
        others = [await system.submit("sleep 0.2") for _ in range(5)]
        await system.finished(*others)
        assert system.scheduler.store.jobs.get(job_id).state is JobState.UNREACHABLE
        system.ray["a"].resume()
        await system.until(job_id, JobState.RUNNING)
        assert clusters_of(system, job_id) == ["a"]
        system.scheduler.service.stop([job_id])
        await system.until(job_id, JobState.STOPPED)
        assert not promises_broken(system, job_id, *others)


async def test_on_unreachable_fail_ends_the_job_and_stops_what_comes_back(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), **IMPATIENT) as system:
        job_id = await running_on(system, "a", "sleep 1000", on_unreachable="fail")
        system.ray["a"].hang()
        job = await system.until(job_id, JobState.FAILED)
        assert "may still be running" in job.reason
        system.ray["a"].resume()
        await eventually(lambda: system.ray["a"].runs[0].end)
        await eventually(lambda: "was found alive on 'a' after it was given up" in system.reasons(job_id))
        assert system.scheduler.store.jobs.get(job_id).state is JobState.FAILED
        assert clusters_of(system, job_id) == ["a"]
        await eventually(lambda: not promises_broken(system, job_id))


async def test_on_unreachable_seconds_starts_it_elsewhere_says_so_and_stops_the_older_one(
    tmp_path: Path,
) -> None:
    a, b = (fake(name, runner=ShellRunner()) for name in "ab")
    enough = tmp_path / "enough"
    async with System(tmp_path, a, b, **IMPATIENT) as system:
        until_then = f"until test -e {enough}; do sleep 0.2; done"
        job_id = await running_on(system, "a", until_then, on_unreachable=1.5)
        system.ray["a"].hang()
        await eventually(lambda: clusters_of(system, job_id) == ["a", "b"])
        system.ray["a"].resume()
        await eventually(lambda: system.ray["a"].runs[0].end)  # it was stopped there
        enough.touch()
        job = await system.until(job_id, JobState.SUCCEEDED)
        assert (job.attempt, job.cluster, job.infra_failures) == (2, "b", 1)
        assert overlaps(runs_of(system.ray.values(), job_id)) == 1
        assert "so the two may overlap" in system.reasons(job_id)
        assert "it may have run beside attempt 2" in system.reasons(job_id)
        outcomes = [attempt.outcome for attempt in system.scheduler.store.history.attempts(job_id)]
        assert outcomes == ["SUPERSEDED", "SUCCEEDED"]
        assert not promises_broken(system, job_id, may_overlap=(job_id,))


async def test_a_silence_shorter_than_on_unreachable_causes_no_second_run(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), **IMPATIENT) as system:
        job_id = await running_on(system, "a", "sleep 2", on_unreachable=3600.0)
        system.ray["a"].hang()
        await system.until(job_id, JobState.UNREACHABLE)
        system.ray["a"].resume()
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a"]
        assert not promises_broken(system, job_id)


async def test_running_is_not_believed_when_the_drivers_node_is_dead(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b")) as system:
        job_id = await running_on(system, "a")
        system.ray["a"].kill_raylet()
        await system.until(job_id, JobState.SUCCEEDED)
        assert system.ray["a"].jobs[job_id].status == "RUNNING"
        assert clusters_of(system, job_id) == ["a", "b"]
        assert "the node of its driver on cluster 'a' is dead" in system.reasons(job_id)
        assert overlaps(runs_of(system.ray.values(), job_id)) == 0


async def test_a_dashboard_that_refuses_alone_is_no_evidence(tmp_path: Path) -> None:
    still_there = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1")
    port = still_there.sockets[0].getsockname()[1]
    clusters = {"a": {"head_address": f"127.0.0.1:{port}"}}
    async with still_there, System(tmp_path, fake("a"), fake("b"), clusters=clusters) as system:
        job_id = await running_on(system, "a", "sleep 4")
        await system.ray["a"].go_dark()
        await eventually(lambda: system.ray["a"].runs[0].end)  # longer than lost_after_refused_s
        assert system.scheduler.store.jobs.get(job_id).state is JobState.UNREACHABLE
        await system.ray["a"].come_back()
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a"]
        assert not promises_broken(system, job_id)


@pytest.mark.parametrize(
    ("a", "head_ports"),
    [({"head_address": "127.0.0.1:9"}, every_port), ({}, head_ports_here)],
    ids=["the-client-port-was-never-open", "another-program-listened-for-the-head"],
)
@pytest.mark.parametrize("restarts", [False, True])
async def test_refusing_is_no_evidence_unless_the_head_itself_was_seen_to_listen(
    tmp_path: Path, a: dict[str, str], head_ports: Callable[[str], Collection[int]], restarts: bool
) -> None:
    async with System(
        tmp_path, fake("a"), fake("b"), clusters={"a": a}, head_ports=head_ports, lost_after_refused_s=1
    ) as system:
        job_id = await running_on(system, "a", "sleep 4")
        await system.ray["a"].go_dark()
        await system.until(job_id, JobState.UNREACHABLE)
        if restarts:
            await system.restart_scheduler()
        await eventually(lambda: system.ray["a"].runs[0].end)
        assert system.scheduler.store.jobs.get(job_id).state is JobState.UNREACHABLE
        await system.ray["a"].come_back()
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a"]
        assert "refused connections are none here" in system.reasons(job_id)
        assert not promises_broken(system, job_id)


async def test_a_scheduler_that_starts_while_a_head_is_down_knows_that_it_was_there(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), lost_after_refused_s=8) as system:
        job_id = await running_on(system, "a")
        await system.ray["a"].kill()
        await system.until(job_id, JobState.UNREACHABLE)
        for _ in range(2):
            await system.restart_scheduler()
            await asyncio.sleep(2.0)  # longer than a look at its jobs takes
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a", "b"]
        assert "both refused connections" in system.reasons(job_id)
        assert not promises_broken(system, job_id)


async def test_a_head_without_gcs_is_unhealthy_although_its_version_answers(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), **IMPATIENT) as system:
        job_id = await running_on(system, "a", "sleep 2")
        system.ray["a"].hang(spare="/api/version")
        await system.until(job_id, JobState.UNREACHABLE)
        store = system.scheduler.store
        await eventually(lambda: store.clusters.load_snapshots()["a"].health is Health.UNHEALTHY)
        other = await system.submit("echo", preferred_cluster="a")
        await system.finished(other)
        assert clusters_of(system, other) == ["b"]
        system.ray["a"].resume()
        await system.until(job_id, JobState.SUCCEEDED)
        assert not promises_broken(system, job_id, other)


async def test_a_flapping_cluster_causes_no_moves_and_no_second_run(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), unreachable_after_s=20, **IMPATIENT) as system:
        flapping = system.ray["a"]
        job_id = await running_on(system, "a", "sleep 6")
        while flapping.runs[0].end is None:
            asked = flapping.calls.total()
            flapping.hang()
            await eventually(lambda asked=asked: flapping.calls.total() > asked + 2)
            flapping.resume()
            await eventually(lambda asked=asked: flapping.calls.total() > asked + 6)
        await system.until(job_id, JobState.SUCCEEDED)
        assert clusters_of(system, job_id) == ["a"]
        assert system.story(job_id) == ["QUEUED", "PLACED", "SUBMITTED", "RUNNING", "SUCCEEDED"]
        assert not promises_broken(system, job_id)


async def test_a_hanging_cluster_does_not_delay_another_one(tmp_path: Path) -> None:
    for_ever = 3600.0  # whoever waits for the hanging cluster does not come back within this test
    slow = {"request_timeout_s": 600.0, "probe_timeout_s": 600.0, "unreachable_after_s": for_ever}
    async with System(tmp_path, fake("a", 1), fake("b", 16), **slow) as system:
        stuck = await running_on(system, "a", "sleep 1000")
        system.ray["a"].hang()
        system.scheduler.service.stop([stuck])
        ids = await system.submit_many(
            [{"entrypoint": "sleep 0.1", "preferred_cluster": "b"} for _ in range(8)]
        )
        done = await system.finished(*ids)
        assert {job.cluster for job in done.values()} == {"b"}
        system.ray["a"].resume()
        await system.until(stuck, JobState.STOPPED)
        assert not promises_broken(system, *ids, stuck)


async def test_a_rotated_token_makes_jobs_unreachable_and_a_new_one_brings_them_back(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", token="old")) as system:
        job_id = await running_on(system, "a", "sleep 4")
        system.ray["a"].token = "new"
        job = await system.until(job_id, JobState.UNREACHABLE)
        assert "does not accept the token" in job.reason
        waiting = await system.submit("echo")
        before = system.ray["a"].calls.total()
        await eventually(lambda: system.ray["a"].calls.total() > before + 3)
        assert system.scheduler.store.jobs.get(waiting).attempt <= 1  # no storm of attempts
        await asyncio.to_thread(system.scheduler.stop)
        system.scheduler = system.another_scheduler()  # with the new token in its environment
        system.scheduler.start()
        done = await system.finished(job_id, waiting)
        assert {job.state for job in done.values()} == {JobState.SUCCEEDED}
        assert not promises_broken(system, job_id, waiting)
        await asyncio.to_thread(system.scheduler.stop)


async def test_a_stop_while_the_cluster_is_silent_is_delivered_when_it_is_back(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), **IMPATIENT) as system:
        job_id = await running_on(system, "a", "sleep 1000")
        system.ray["a"].hang()
        await system.until(job_id, JobState.UNREACHABLE)
        system.scheduler.service.stop([job_id])
        assert system.scheduler.store.jobs.get(job_id).target is Target.STOPPED
        system.ray["a"].resume()
        await system.until(job_id, JobState.STOPPED)
        assert system.ray["a"].runs[0].end
        assert not promises_broken(system, job_id)


@pytest.mark.parametrize("stop", [False, True])
async def test_a_job_of_a_cluster_that_is_no_longer_configured_is_kept_and_can_be_stopped(
    tmp_path: Path, stop: bool
) -> None:
    async with System(tmp_path, fake("a"), fake("b")) as system:
        job_id = await running_on(system, "a", "sleep 3")
        await asyncio.to_thread(system.scheduler.stop)
        without = system.another_scheduler()
        without.config = replace(without.config, clusters=without.config.clusters[1:])
        system.scheduler = without
        without.start()
        job = await system.until(job_id, JobState.UNREACHABLE)
        assert "clusters.yaml" in job.reason
        if stop:
            without.service.stop([job_id])
            await system.until(job_id, JobState.STOPPED)
        await asyncio.to_thread(without.stop)
        system.scheduler = system.another_scheduler()
        system.scheduler.start()
        await system.until(job_id, JobState.STOPPED if stop else JobState.SUCCEEDED)
        await eventually(lambda: system.ray["a"].runs[0].end)
        await eventually(lambda: not promises_broken(system, job_id))
        await asyncio.to_thread(system.scheduler.stop)
