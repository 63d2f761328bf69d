"""The service over HTTP answers as the one in the server's process does, and survives what networks do."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.support.cable import Cable
from tests.support.serving import live
from tests.support.system import System, fake
from tests.support.waiting import PATIENCE_S, eventually

from ray_multicluster_scheduler.client.http import HttpService
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.config.find import this_user
from ray_multicluster_scheduler.errors import (
    DuplicateSubmission,
    JobNotFound,
    SchedulerError,
    ServerBadAnswer,
    ServerLost,
    ServerUnreachable,
    WaitTimeout,
)
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.service.api import Service
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.request import JobRequest


def request(entrypoint: str = "echo hi", **given: Any) -> JobRequest:
    return JobRequest(**{"entrypoint": entrypoint, "user": this_user(), **given})


class Both:
    """A system, its own service, and the same over HTTP through a cable."""

    def __init__(self, system: System, cable: Cable) -> None:
        self.system = system
        self.cable = cable
        self.local: Service = system.scheduler.service
        self.server = ServerAddress(url=f"http://{cable.address}", named_by="the test")
        self.http = HttpService(self.server, user=this_user())

    async def run(self, entrypoint: str = "echo hi", **given: Any) -> str:
        job = (await asyncio.to_thread(self.http.submit, [request(entrypoint, **given)]))[0]
        await self.system.finished(job.submission_id)
        return job.submission_id


@asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[Both]:
    async with System(tmp_path, fake("a"), fake("b")) as system:
        with live(create_app(system.scheduler)) as address, Cable(address.removeprefix("http://")) as cable:
            both = Both(system, cable)
            yield both
            both.http.close()


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    async with served(tmp_path) as found:
        yield found


LOOKS: dict[str, Callable[[Service, str], object]] = {
    "find": lambda service, name: service.find(name[:10]),
    "find_each": lambda service, name: service.find_each([name, "greeting"]),
    "get_many": lambda service, name: service.get_many([name, "nobody"]),
    "detail": lambda service, name: service.detail(name),
    "attempts": lambda service, name: service.attempts(name),
    "list_jobs": lambda service, name: service.list_jobs(JobQuery(tag="x", states=(JobState.SUCCEEDED,))),
    "heads": lambda service, name: service.list_jobs(JobQuery(heads_only=True)),
    "members": lambda service, name: service.list_jobs(JobQuery(head="array-0", limit=2)),
    "timeline": lambda service, name: service.timeline(since=0.0, until=4e9, cluster="a", limit=5),
    "no_state": lambda service, name: service.list_jobs(JobQuery(states=())),
    "counts": lambda service, name: service.counts([JobState.SUCCEEDED, JobState.FAILED]),
    "counts since": lambda service, name: service.counts([JobState.SUCCEEDED], changed_since=4e9),
    "waiting": lambda service, name: service.list_jobs(JobQuery(wait_reason="NO_ROOM")),
    "list_jobs then": lambda service, name: service.list_jobs(JobQuery(changed_since=1.0, changed_until=4e9)),
    "no_counts": lambda service, name: service.counts([]),
    "queue": lambda service, name: service.queue(limit=5),
    "events": lambda service, name: service.events(name, limit=3),
    "all_events": lambda service, name: service.events(after=2),
    "log": lambda service, name: service.log(name),
    "log_of_no_attempt": lambda service, name: service.log(name, 7),
    "tail": lambda service, name: "".join(service.tail(name)),
    "changes": lambda service, name: list(service.changes([name], timeout_s=PATIENCE_S, tick_s=1))[-1],
    "changes_of_nothing": lambda service, name: list(service.changes([], timeout_s=PATIENCE_S, tick_s=1)),
    "explain": lambda service, name: service.explain(name),
    "wait_reasons": lambda service, name: service.wait_reasons(),
    "processes": lambda service, name: service.processes(),
    "configuration": lambda service, name: service.configuration(),
    "news": lambda service, name: service.news(0, timeout_s=1),
    "no_news": lambda service, name: service.news(10**6, timeout_s=0.1),
    "drained": lambda service, name: service.set_drained("a", drained=False, reason="new disks"),
    "prune": lambda service, name: service.prune(dry_run=True),
    "has_no_package": lambda service, name: service.packages.has("_ray_pkg_0123456789abcdef.zip"),
}
REFUSALS: dict[str, Callable[[Service], object]] = {
    "detail": lambda service: service.detail("nobody"),
    "strange id": lambda service: service.detail("no/body?#%2f\n"),
    "find": lambda service: service.find("greeding"),
    "find_each": lambda service: service.find_each(["nobody"]),
    "stop": lambda service: service.stop(["nobody"]),
    "delete": lambda service: service.delete(["taken", "nobody"]),
    "delete of a job that waits": lambda service: service.delete(["taken", "waiting"]),
    "delete without a list": lambda service: service.delete("taken"),
    "retry": lambda service: service.retry(["nobody"]),
    "retry of a success": lambda service: service.retry(["greeting"]),
    "events": lambda service: service.list_jobs(JobQuery(cursor="x")),
    "page": lambda service: service.list_jobs(JobQuery(limit=5000)),
    "attempts": lambda service: service.attempts("nobody"),
    "head": lambda service: service.list_jobs(JobQuery(head="")),
    "timeline backwards": lambda service: service.timeline(since=20.0, until=10.0),
    "timeline of the future": lambda service: service.timeline(since=9e9),
    "timeline from no time": lambda service: service.timeline(since=float("nan")),
    "timeline from None": lambda service: service.timeline(since=None),
    "timeline until no time": lambda service: service.timeline(since=1.0, until=-1.0),
    "timeline of too many": lambda service: service.timeline(since=1.0, limit=10_001),
    "timeline of none": lambda service: service.timeline(since=1.0, limit=0),
    "timeline of no cluster": lambda service: service.timeline(since=1.0, cluster=""),
    "explain": lambda service: service.explain("nobody"),
    "log": lambda service: service.log("nobody"),
    "tail": lambda service: list(service.tail("nobody")),
    "changes": lambda service: list(service.changes(["nobody"], timeout_s=PATIENCE_S, tick_s=1)),
    "cluster": lambda service: service.set_drained("c", drained=True),
    "doctor of no cluster": lambda service: service.run_doctor(["a", "c"]),
    "duplicate": lambda service: service.submit([request(submission_id="taken")]),
    "dependency": lambda service: service.submit([request(submission_id="d", depends_on=["nobody"])]),
    "environment": lambda service: service.submit([request(runtime_env={"conda": "a", "pipp": []})]),
    "too large": lambda service: service.submit([request(resource_requirements={"CPU": 10**6})]),
    "path": lambda service: service.submit([request(runtime_env={"working_dir": "/home/ann/.ssh"})]),
    "surrogate": lambda service: service.submit([request(metadata={"a": "\ud800"})]),
    "nul": lambda service: service.find("a\0"),
}


async def test_every_answer_is_that_of_the_service_itself(both: Both) -> None:
    name = await both.run("echo hello", job_id="greeting", tags=["x"], runtime_env={"env_vars": {"A": "b"}})
    for n in range(3):
        await both.run("echo hello", submission_id=f"array-{n}", group="array")
    for what, look in LOOKS.items():
        here, there = [await asyncio.to_thread(look, each, name) for each in (both.local, both.http)]
        assert there == here, what
    local, http = [await asyncio.to_thread(each.clusters) for each in (both.local, both.http)]
    assert [each.name for each in http] == [each.name for each in local] == ["a", "b"]
    leader = await asyncio.to_thread(both.http.leader)
    assert leader is not None
    assert leader.holder == both.system.scheduler.holder


async def test_every_refusal_is_that_of_the_service_itself(both: Both) -> None:
    await both.run("echo hello", job_id="greeting")
    await both.run("echo hello", submission_id="taken")
    long = await asyncio.to_thread(both.http.submit, [request("sleep 600", submission_id="long")])
    await asyncio.to_thread(both.http.submit, [request(submission_id="waiting", depends_on=["long"])])
    for what, ask in REFUSALS.items():
        told = []
        for service in (both.local, both.http):
            with pytest.raises(SchedulerError) as caught:
                await asyncio.to_thread(ask, service)
            told.append(caught.value)
        here, there = told
        assert type(there) is type(here), (what, there)
        assert str(there) == str(here), what
        assert vars(there) == vars(here), what
    await asyncio.to_thread(both.http.stop, [job.submission_id for job in long])


async def test_a_plan_and_a_change_are_those_of_the_service_itself(both: Both) -> None:
    await eventually(lambda: all(each.health is Health.HEALTHY for each in both.local.clusters()))
    asked = request(preferred_cluster="b")  # of two equal ones the better is now this one, now that one
    plans = [await asyncio.to_thread(each.plan, asked) for each in (both.local, both.http)]
    assert plans[0].cluster == plans[1].cluster == "b"
    assert plans[0].environments.keys() == plans[1].environments.keys()
    running = (await asyncio.to_thread(both.http.submit, [request("sleep 600")]))[0].submission_id
    (stopped,) = await asyncio.to_thread(both.http.stop, [running], reason="enough")
    assert stopped.stopping
    assert (await both.system.until(running, JobState.STOPPED)).reason.startswith("enough")
    (again,) = await asyncio.to_thread(both.http.retry, [running])
    assert again.metadata["raymc.retry_of"] == running
    await asyncio.to_thread(both.http.stop, [again.submission_id])
    await asyncio.to_thread(both.http.set_drained, "b", drained=True, reason="disks")
    drained = {each.name: each.drain_reason for each in await asyncio.to_thread(both.http.clusters)}
    assert drained["b"] == "disks"


async def test_changes_are_told_as_they_happen_to_threads_and_to_asyncio(both: Both) -> None:
    jobs = await asyncio.to_thread(both.http.submit, [request("sleep 0.3"), request("exit 3")])
    ids = [job.submission_id for job in jobs]

    def wait() -> list[set[JobState]]:
        seen = both.http.changes(ids, timeout_s=PATIENCE_S, tick_s=5)
        return [{job.state for job in each.values()} for each in seen]

    threaded, shown = asyncio.create_task(asyncio.to_thread(wait)), []
    async for each in both.http.changes_async(ids, timeout_s=PATIENCE_S, tick_s=5):
        assert set(each) == set(ids)
        shown.append({job.state for job in each.values()})
    assert shown[-1] == (await threaded)[-1] == {JobState.SUCCEEDED, JobState.FAILED}


async def test_a_wait_that_takes_too_long_names_who_is_open(both: Both) -> None:
    (job,) = await asyncio.to_thread(both.http.submit, [request("sleep 600")])
    with pytest.raises(WaitTimeout, match=r"within 0\.3 s") as caught:
        await asyncio.to_thread(
            lambda: list(both.http.changes([job.submission_id], timeout_s=0.3, tick_s=0.1))
        )
    assert caught.value.submission_ids == (job.submission_id,)
    with pytest.raises(WaitTimeout):
        async for _ in both.http.changes_async([job.submission_id], timeout_s=0.3, tick_s=0.1):
            pass
    await asyncio.to_thread(both.http.stop, [job.submission_id])


async def test_a_wait_goes_on_after_the_connection_broke(both: Both) -> None:
    (job,) = await asyncio.to_thread(both.http.submit, [request("sleep 2")])
    states = []
    async for jobs in both.http.changes_async([job.submission_id], timeout_s=PATIENCE_S, tick_s=0.2):
        if not states:
            both.cable.cut()
            asyncio.get_running_loop().call_later(0.5, both.cable.mend)
        states.append(jobs[job.submission_id].state)
    assert states[-1] is JobState.SUCCEEDED


async def test_a_tail_goes_on_where_it_broke_off(both: Both) -> None:
    (job,) = await asyncio.to_thread(both.http.submit, [request("echo one; sleep 2; echo two")])
    text = ""
    async for piece in both.http.tail_async(job.submission_id):
        text += piece
        if "\none\n" in text and "two" not in text:
            both.cable.cut()
            await asyncio.sleep(0.2)
            both.cable.mend()
    assert text == await asyncio.to_thread(both.local.log, job.submission_id)
    assert "".join(await asyncio.to_thread(lambda: list(both.http.tail(job.submission_id)))) == text


async def test_all_events_are_told_once_over_a_broken_connection(both: Both) -> None:
    first = await both.run()
    seen = []
    async for event in both.http.events_async(after=0):
        seen.append(event)
        if len(seen) == 2:
            both.cable.cut()
            await asyncio.sleep(0.1)
            both.cable.mend()
        if event.new in FINAL:
            break
    assert tuple(seen) == await asyncio.to_thread(both.local.events, first)


async def test_a_submission_whose_answer_is_lost_is_repeated_and_makes_one_job(both: Both) -> None:
    await asyncio.to_thread(both.http.leader)
    both.cable.lose_answers(2)
    (job,) = await asyncio.to_thread(both.http.submit, [request(job_id="once")])
    assert both.cable.lost == 2
    listed = await asyncio.to_thread(both.local.list_jobs, JobQuery(job_id="once"))
    assert [each.submission_id for each in listed.jobs] == [job.submission_id]
    both.cable.lose_answers(1)
    (named,) = await asyncio.to_thread(both.http.submit, [request(submission_id="mine", priority=3)])
    assert named.submission_id == "mine"


async def test_a_taken_id_stays_taken_when_an_answer_was_lost(both: Both) -> None:
    await both.run("echo another", submission_id="mine")
    both.cable.lose_answers(1)
    with pytest.raises(DuplicateSubmission):
        await asyncio.to_thread(both.http.submit, [request("echo hi", submission_id="mine")])


async def test_a_deletion_whose_answer_is_lost_is_repeated_and_is_done(both: Both) -> None:
    name = await both.run(submission_id="mine")
    both.cable.lose_answers(1)
    await asyncio.to_thread(both.http.delete, [name])
    assert both.cable.lost == 1
    assert await asyncio.to_thread(both.local.get_many, [name]) == {}
    with pytest.raises(JobNotFound):
        await asyncio.to_thread(both.http.delete, [name])


async def test_what_is_only_partly_unknown_is_not_taken_for_deleted(both: Both) -> None:
    name = await both.run(submission_id="mine")
    both.cable.lose_answers(1)
    with pytest.raises(JobNotFound, match="nobody"):
        await asyncio.to_thread(both.http.delete, [name, "nobody"])
    assert name in await asyncio.to_thread(both.local.get_many, [name])


async def test_what_would_be_done_twice_is_not_repeated_when_its_answer_is_lost(both: Both) -> None:
    (job,) = await asyncio.to_thread(both.http.submit, [request("exit 1")])
    await both.system.finished(job.submission_id)
    both.cable.lose_answers(1)
    with pytest.raises(ServerLost, match="may or may not have been done"):
        await asyncio.to_thread(both.http.retry, [job.submission_id])
    jobs = (await asyncio.to_thread(both.local.list_jobs)).jobs
    assert len(jobs) == 2


async def test_a_package_is_sent_once_by_its_content(both: Both, tmp_path: Path) -> None:
    from ray_multicluster_scheduler.client.packing import handed_over
    from ray_multicluster_scheduler.packages.store import PackageStore

    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("print(1)\n")

    class Handle:
        packages = PackageStore(tmp_path / "cache")
        service = both.http

    asked = request("cat main.py", runtime_env={"working_dir": str(code)})
    ready = await asyncio.to_thread(handed_over, asked, Handle())
    name = ready.runtime_env["working_dir"].removeprefix("gcs://")
    assert both.local.packages.has(name)
    assert await asyncio.to_thread(both.http.packages.has, name)
    (job,) = await asyncio.to_thread(both.http.submit, [ready])
    await both.system.finished(job.submission_id)
    assert any(f"gcs://{name}" in ray.cluster.packages for ray in both.system.ray.values())


def service_at(url: str, **given: Any) -> HttpService:
    return HttpService(ServerAddress(url=url, named_by="RAY_MULTICLUSTER_ADDRESS", **given), user="ann")


def test_a_server_that_is_not_there_is_named_with_what_to_look_at() -> None:
    with pytest.raises(ServerUnreachable) as caught:
        service_at("http://127.0.0.1:1").clusters()
    told = str(caught.value)
    assert "http://127.0.0.1:1" in told
    assert "raymc serve" in told
    assert "RAY_MULTICLUSTER_ADDRESS" in told
    with pytest.raises(ServerUnreachable, match="host is not known"):
        service_at("http://no-such-host.invalid:80").clusters()


class _Other(BaseHTTPRequestHandler):
    """Something else that speaks HTTP, as a Ray dashboard does."""

    answer: tuple[int, str, bytes] = (404, "text/plain", b"404: Not Found")

    def do_GET(self) -> None:
        status, kind, content = self.answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, "text/plain", b"404: Not Found"), "not of a Ray dashboard"),
        ((200, "text/html", b"<html>"), "not with JSON"),
        ((200, "application/json", b'{"clusters": [{"name": "a"}]}'), "same version on both sides"),
        ((500, "text/plain", b"Internal Server Error"), "its log says why"),
        ((404, "application/json", b'{"error": {"type": "NotFound", "message": "Not Found"}}'), "status 404"),
    ],
)
def test_something_else_that_answers_is_told_apart(answer: tuple[int, str, bytes], words: str) -> None:
    handler = type("Handler", (_Other,), {"answer": answer})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ServerBadAnswer, match=words):
            service_at(f"http://127.0.0.1:{server.server_port}").clusters()
        with pytest.raises(ServerUnreachable, match="does it speak http"):
            service_at(f"https://127.0.0.1:{server.server_port}").clusters()
        server.shutdown()
