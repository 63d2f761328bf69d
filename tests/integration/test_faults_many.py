"""Bad clusters among good ones: black holes starve, and jobs of a dead cluster do not flood the others."""

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest
from tests.support.oracle import broken_promises, overlaps, runs_of
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.core.rules import QuarantineRules
from ray_multicluster_scheduler.model.decision import Cause
from ray_multicluster_scheduler.model.job import JobEvent
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import ScriptedRunner

SUBMIT = "POST /api/jobs/"


async def test_a_cluster_on_which_jobs_die_gets_less_then_nothing_until_a_probe_job_does_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = QuarantineRules(pause_s=1.0)
    monkeypatch.setattr("ray_multicluster_scheduler.engine.leader.QuarantineRules", lambda: rules)
    async with System(tmp_path, fake("hole", 64), fake("good", 2), max_infra_retries=20) as system:
        hole = system.ray["hole"]
        hole.fail_starts("JOB_SUPERVISOR_ACTOR_START_FAILURE")
        ids = await system.submit_many([{"entrypoint": "sleep 0.2"}] * 30)
        await eventually(
            lambda: "died within" in system.scheduler.store.clusters.load_snapshots()["hole"].throttle_reason
        )
        done = await system.finished(*ids)
        assert {job.state for job in done.values()} == {JobState.SUCCEEDED}
        assert {run.cluster for each in ids for run in runs_of(system.ray.values(), each)} == {"good"}
        assert (
            hole.calls[SUBMIT] < 15
        )  # without a limit it would have been given all of them, again and again
        hole.fail_starts(None)
        more = await system.submit_many([{"entrypoint": "sleep 0.2"}] * 60)
        await system.finished(*more)
        assert len(hole.runs) > 20
        assert not broken_promises(
            system.scheduler.store, system.ray.values(), [*ids, *more], max_infra_retries=20
        )


async def test_explain_tells_that_a_cluster_is_held_back_and_why(tmp_path: Path) -> None:
    async with System(tmp_path, fake("hole"), max_infra_retries=20) as system:
        system.ray["hole"].fail_starts("JOB_SUPERVISOR_ACTOR_START_FAILURE")
        await system.submit_many([{"entrypoint": "sleep 0.2"}] * 4)
        snapshots = system.scheduler.store.clusters.load_snapshots
        await eventually(lambda: snapshots()["hole"].throttle == 0)
        waiting = await system.submit("echo")
        told = await asyncio.to_thread(system.scheduler.service.explain, waiting)
        assert told.decision is not None
        refusal = told.decision.refusals["hole"]
        assert (refusal.cause, "died within 30 s" in refusal.sentence) == (Cause.THROTTLED, True)


async def test_the_jobs_of_a_cluster_that_dies_with_many_do_not_flood_the_others(tmp_path: Path) -> None:
    async def short_sleep(_: float) -> None:
        await asyncio.sleep(0.01)

    jobs, rate, starts = 500, 100.0, 20
    caps = {"good": 30, "small": 100}
    async with System(
        tmp_path,
        fake("dies", jobs),
        fake("good", 100, runner=ScriptedRunner(sleep=short_sleep)),
        fake("small", 2, runner=ScriptedRunner(sleep=short_sleep)),
        clusters={"dies": {"max_running_jobs": jobs}, "good": {"max_running_jobs": caps["good"]}},
        max_starts_in_flight=starts,
        replacement_rate=rate,
    ) as system:
        for name in caps:
            system.scheduler.service.set_drained(name, drained=True, reason="the jobs start on the other one")
        ids = await system.submit_many([{"entrypoint": "sleep 1000"}] * jobs)
        await eventually(lambda: len(system.ray["dies"].runs) == jobs)
        for name in caps:
            system.scheduler.service.set_drained(name, drained=False, reason="")
        await system.ray["dies"].kill()
        done = {each: await system.until(each, JobState.SUCCEEDED) for each in ids}

        events = _all_events(system)
        for name, cap in caps.items():
            placed = _most_at_once(events, name, until={"SUCCEEDED"})
            assert placed <= min(cap, system.ray[name].cluster.total["CPU"])
            assert _most_at_once(events, name, until={"RUNNING", "SUCCEEDED"}) <= starts
            assert system.ray[name].runs
        turns = sorted(job.not_before for job in done.values())
        for first in range(0, jobs, 10):
            in_a_second = sum(turns[first] <= turn < turns[first] + 1 for turn in turns)
            assert in_a_second <= 2 * rate + 10  # the burst, and what one second brings
        assert all(overlaps(runs_of(system.ray.values(), each)) == 0 for each in ids)
        assert not broken_promises(system.scheduler.store, system.ray.values(), ids)


def _all_events(system: System) -> list[JobEvent]:
    events: list[JobEvent] = []
    while page := system.scheduler.store.history.events(after=events[-1].id if events else 0):
        events += page
    return events


def _most_at_once(events: list[JobEvent], cluster: str, *, until: set[str]) -> int:
    """How many jobs were at most between their placement on a cluster and one of these states."""
    inside: defaultdict[str, bool] = defaultdict(bool)
    most = 0
    for event in events:
        if event.cluster == cluster:
            inside[event.submission_id] = event.new.value not in {*until, "QUEUED"}
            most = max(most, sum(inside.values()))
    return most
