"""What operators and pages see of the queue, the clusters and the configuration, here and over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.serving import live
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.client.http import HttpService
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.cluster_health.diagnosis import Verdict
from ray_multicluster_scheduler.config.find import this_user
from ray_multicluster_scheduler.config.schema import QuotaEntry
from ray_multicluster_scheduler.environment.redact import REDACTED
from ray_multicluster_scheduler.errors import Forbidden, TooManyRequests
from ray_multicluster_scheduler.model.decision import DEPENDENCIES, Cause
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.service import service as scheduler_calls
from ray_multicluster_scheduler.service.api import Service
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.service import LocalService

SECRET = "not-for-any-screen"
ENVIRONMENT = {
    "runtime_env": {
        "pip": ["numpy", f"git+https://ann:{SECRET}@example.org/x"],
        "env_vars": {"home_dir": "/home/ann", "DB_PASSWORD": SECRET},
    }
}


@asynccontextmanager
async def served(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[System, LocalService, HttpService]]:
    async with System(tmp_path, fake("a", 1), clusters={"a": ENVIRONMENT}, **settings) as system:
        with live(create_app(system.scheduler)) as address:
            http = HttpService(ServerAddress(url=address, named_by="the test"), user=this_user())
            yield system, system.scheduler.service, http
            http.close()


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[tuple[System, LocalService, HttpService]]:
    async with served(tmp_path) as found:
        yield found


Doors = tuple[System, LocalService, HttpService]


async def test_an_attempt_and_a_dry_run_say_whose_each_part_is(doors: Doors) -> None:
    system, *services = doors
    own = {"pip": ["pandas"], "env_vars": {"MODE": "fast"}}
    name = await system.submit("echo hi", runtime_env=own)
    await system.finished(name)
    expected = {
        "pip": "both",
        "env_vars.home_dir": "cluster",
        "env_vars.DB_PASSWORD": "cluster",
        "env_vars.MODE": "job",
        "env_vars.RAY_MULTICLUSTER_ATTEMPT": "scheduler",
    }
    for service in services:
        (attempt,) = (await asyncio.to_thread(service.detail, name)).attempts
        request = JobRequest(entrypoint="echo hi", user=this_user(), runtime_env=own)
        planned = await asyncio.to_thread(service.plan, request)
        for shown in (attempt, planned.environments["a"]):
            assert shown.origins.items() >= expected.items()
            assert SECRET not in str(shown)
            told = {f"env_vars.{each}" for each in shown.runtime_env["env_vars"]}
            assert shown.origins.keys() == (shown.runtime_env.keys() - {"env_vars"}) | told


async def test_why_jobs_wait_is_the_same_whoever_is_asked(doors: Doors) -> None:
    system, local, http = doors
    running = await system.submit("sleep 600", submission_id="runs")
    await system.until(running, JobState.RUNNING)
    await system.submit_many([{"entrypoint": "true", "submission_id": f"waits-{i}"} for i in range(3)])
    await system.submit("true", depends_on=["waits-0"])
    other = system.another_scheduler()

    async def counted(service: Service) -> dict[str, int]:
        return {wait.reason: wait.jobs for wait in await asyncio.to_thread(service.wait_reasons)}

    async def is_published() -> bool:  # the leader does it in a while
        return await counted(local) == {DEPENDENCIES: 1, Cause.NO_ROOM.value: 3}

    try:
        await eventually(is_published)
        assert await counted(http) == await counted(other.service) == await counted(local)
    finally:
        await asyncio.to_thread(other.stop)
        await asyncio.to_thread(local.stop, [running])


async def test_what_runs_on_clusters_is_shown_without_secrets(doors: Doors) -> None:
    system, *services = doors
    name = await system.submit(f"sleep 600; echo {SECRET}", submission_id="runs")
    await system.until(name, JobState.RUNNING)
    for service in services:
        found = await asyncio.to_thread(service.processes)
        (item,) = [each for each in found.items if each.kind == "job"]
        assert (item.cluster, item.what, item.why) == (
            "a",
            f"sleep 600; echo {REDACTED}",
            "submitted as runs",
        )
        assert found.problems == {}
    await asyncio.to_thread(services[0].stop, [name])


async def test_events_are_shown_without_secrets_in_lists_and_live(doors: Doors) -> None:
    system, *services = doors
    name = await system.submit("sleep 600")
    await asyncio.to_thread(services[0].stop, [name], reason=f"it printed {SECRET}")
    await system.finished(name)
    assert SECRET in str(system.scheduler.store.history.events(name))
    for service in services:
        listed = await asyncio.to_thread(service.events, name)
        async with aclosing(service.events_async(after=0)) as live_events:
            streamed = [await anext(live_events) for _ in listed]
        assert tuple(streamed) == listed
        assert SECRET not in str(listed)
        assert f"it printed {REDACTED}" in str(listed)


async def test_a_cluster_that_cannot_be_looked_at_says_why(doors: Doors) -> None:
    system, local, _ = doors
    system.ray["a"].token = "changed"
    found = await asyncio.to_thread(local.processes)
    assert found.problems.keys() == {"a"}


async def test_the_configuration_is_the_same_here_and_over_http(doors: Doors) -> None:
    _, local, http = doors
    here, there = await asyncio.to_thread(local.configuration), await asyncio.to_thread(http.configuration)
    assert there == here
    assert SECRET not in str(here)
    assert here.clusters["a"]["runtime_env"]["env_vars"] == {"home_dir": "/home/ann", "DB_PASSWORD": REDACTED}
    assert here.settings["poll_interval_s"] == local._parts.config.settings.poll_interval_s


async def test_users_are_counted_with_what_they_have_and_may_have(tmp_path: Path) -> None:
    quotas = {"ann": QuotaEntry(jobs=5)}
    async with served(tmp_path, quotas=quotas) as (system, local, http):
        await system.submit("sleep 600", submission_id="runs", resource_requirements={"CPU": 1})
        here, there = await asyncio.to_thread(local.admin.users), await asyncio.to_thread(http.admin.users)
        assert there == here
        (ann,) = here
        assert (ann.user, ann.open_jobs, ann.claimed, ann.quota_jobs) == ("ann", 1, {"CPU": 1.0}, 5)
        await asyncio.to_thread(local.stop, ["runs"])


async def test_a_drained_cluster_says_since_when(doors: Doors) -> None:
    system, local, http = doors
    before = system.scheduler.clock.now()
    await asyncio.to_thread(local.set_drained, "a", drained=True, reason="tea")
    (shown,) = await asyncio.to_thread(http.clusters)
    assert (shown.drained_at is not None, shown.drain_reason) == (True, "tea")
    assert before <= shown.drained_at <= system.scheduler.clock.now()
    await asyncio.to_thread(local.set_drained, "a", drained=False)
    (shown,) = await asyncio.to_thread(http.clusters)
    assert (shown.drained_at, shown.drain_reason) == (None, None)


async def test_only_who_reads_all_sees_processes_and_the_configuration(doors: Doors) -> None:
    _, local, _ = doors
    service = local.as_caller(Caller(user="bob", role=Role.SUBMIT))
    for ask in (service.processes, service.configuration):
        with pytest.raises(Forbidden, match="this needs the role 'read-all'; 'bob' has 'submit'"):
            await asyncio.to_thread(ask)
    seeing = local.as_caller(Caller(user="eve", role=Role.READ_ALL))
    assert (await asyncio.to_thread(seeing.configuration)).clusters


async def test_a_short_job_tells_of_a_cluster_here_and_over_http_and_who_asked(doors: Doors) -> None:
    system, *services = doors
    for service in services:
        (report,) = await asyncio.to_thread(service.run_doctor, ["a"], timeout_s=60)
        assert report.name == "a"
        assert report.dashboard == system.ray["a"].spec().dashboard
        (check,) = [each for each in report.checks if each.name == "run"]
        assert (check.verdict, check.says[-17:]) == (Verdict.PROBLEM, "python: not found")  # on this cluster
    assert [run.submission_id[:12] for run in system.ray["a"].runs] == ["raymc-probe-"] * 2
    entries = (await asyncio.to_thread(services[0].admin.audit)).entries
    assert [(each.action, each.target) for each in entries][:2] == [("doctor", "a")] * 2


@pytest.mark.parametrize(("busy", "said"), [("bob", "one of yours is"), ("abcd", "4 are")])
async def test_checks_with_jobs_are_one_for_each_user_and_few_in_all(
    doors: Doors, monkeypatch: pytest.MonkeyPatch, busy: str, said: str
) -> None:
    _, local, _ = doors
    monkeypatch.setattr(scheduler_calls, "_doctors_of", {busy} if busy == "bob" else set(busy))
    service = local.as_caller(Caller(user="bob", role=Role.SUBMIT))
    with pytest.raises(TooManyRequests, match=f"{said} under way"):
        await asyncio.to_thread(service.run_doctor)


async def test_a_reader_runs_no_job_on_a_cluster(doors: Doors) -> None:
    system, local, _ = doors
    service = local.as_caller(Caller(user="bob", role=Role.READ))
    with pytest.raises(Forbidden, match="this needs the role 'submit'; 'bob' has 'read'"):
        await asyncio.to_thread(service.run_doctor)
    assert system.ray["a"].runs == []
