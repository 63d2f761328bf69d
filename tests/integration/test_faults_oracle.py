"""The invariants are worth something: each known bug, planted on purpose, breaks one of them.

A further one, sending before writing, needs a real crash: it is in test_crash_points.py.
"""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.oracle import broken_promises, runs_of
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.core.instructions import SendAttempt
from ray_multicluster_scheduler.core.lifecycle.transitions import SendOutcome, SendResult
from ray_multicluster_scheduler.engine.send import Sender
from ray_multicluster_scheduler.errors import ClusterTimeout
from ray_multicluster_scheduler.model.cluster import RemoteVersion
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ray_api.http_connection import HttpClusterProbe


def broken_letters(system: System, job_id: str) -> set[str]:
    return {problem[:2] for problem in broken_promises(system.scheduler.store, system.ray.values(), [job_id])}


async def test_sending_again_under_a_new_id_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, numbers = Sender._packed, itertools.count(100)

    async def another_id(self: Sender, job: Job, request: StartRequest) -> tuple[StartRequest, str | None]:
        sent, own_package = await packed(self, job, request)
        return replace(sent, remote_id=f"{request.remote_id}--r{next(numbers)}"), own_package

    async with System(tmp_path, fake("a"), probe_interval_s=3600.0) as system:
        await system.finished(await system.submit("echo the first probe is over"))
        monkeypatch.setattr(Sender, "_packed", another_id)
        system.ray["a"].lose_reply(only="POST /api/jobs/")
        job_id = await system.submit("sleep 2")
        await eventually(lambda: len(runs_of(system.ray.values(), job_id)) == 2)
        assert "I2" in broken_letters(system, job_id)


async def test_ignoring_a_new_session_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version_of = HttpClusterProbe.version

    async def no_session(self: HttpClusterProbe) -> RemoteVersion:
        return replace(await version_of(self), session_name=None)

    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("sleep 1000")
        await system.until(job_id, JobState.RUNNING)
        monkeypatch.setattr(HttpClusterProbe, "version", no_session)
        await system.ray["a"].restart()
        await system.until(job_id, JobState.FAILED)
        assert "I3" in broken_letters(system, job_id)


async def test_starting_elsewhere_after_a_mere_time_out_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Sender._send

    async def give_up(self: Sender, wanted: SendAttempt) -> SendOutcome:
        try:
            return await send(self, wanted)
        except ClusterTimeout:
            return SendOutcome(result=SendResult.ID_TAKEN, detail="no answer: try another cluster")

    monkeypatch.setattr(Sender, "_send", give_up)
    impatient = {"request_timeout_s": 1.0, "probe_timeout_s": 1.0}
    async with System(tmp_path, fake("a"), fake("b"), probe_interval_s=3600.0, **impatient) as system:
        await system.finished(await system.submit("echo", preferred_cluster="a"))
        system.ray["a"].hang()
        job_id = await system.submit("sleep 1000", preferred_cluster="a")
        await eventually(lambda: system.ray["a"].calls["POST /api/jobs/"] == 2)
        system.scheduler.service.set_drained("a", drained=True, reason="the next placement goes elsewhere")
        await eventually(lambda: system.ray["b"].runs)
        system.ray["a"].resume()
        await eventually(lambda: len(runs_of(system.ray.values(), job_id)) >= 2)
        assert "I2" in broken_letters(system, job_id)
