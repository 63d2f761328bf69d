"""The REST interface on a whole system: every answer is what the service says in this process."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.serving import live
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.config.find import this_user
from ray_multicluster_scheduler.errors import JobNotFound, error_from, error_json
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.views import View

JSON = {"Content-Type": "application/json"}


class Rest:
    """A system and a client of its server."""

    def __init__(self, system: System, http: aiohttp.ClientSession) -> None:
        self.system = system
        self.http = http
        self.service = system.scheduler.service

    async def ask(self, method: str, path: str, *, status: int = 200, **options: Any) -> Any:
        async with self.http.request(method, f"/api/v1{path}", **options) as answer:
            assert answer.status == status, await answer.text()
            assert answer.headers["x-request-id"]
            return await answer.json()

    async def submit(self, entrypoint: str = "sleep 0.1", **job: Any) -> dict[str, Any]:
        found: dict[str, Any] = await self.ask(
            "POST", "/jobs", status=201, json={"entrypoint": entrypoint, **job}
        )
        return found


@asynccontextmanager
async def serving(tmp_path: Path, **settings: Any) -> AsyncIterator[Rest]:
    async with System(tmp_path, fake("a"), fake("b"), **settings) as system:
        with live(create_app(system.scheduler)) as address:
            async with aiohttp.ClientSession(address) as http:
                yield Rest(system, http)


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Rest]:
    async with serving(tmp_path) as found:
        yield found


def shown(view: View) -> Any:
    return view.model_dump(mode="json")


async def test_a_job_runs_and_all_that_is_known_of_it_is_told(rest: Rest) -> None:
    job = await rest.submit("echo hello", job_id="greeting", tags=["x"], priority=3)
    name = job["submission_id"]
    assert job["user"] == this_user()
    assert job["state"] in {"QUEUED", "PLACED"}
    await rest.system.until(name, JobState.SUCCEEDED)
    service = rest.service
    assert await rest.ask("GET", f"/jobs/{name}") == shown(service.detail(name))
    assert await rest.ask("GET", f"/jobs/{name}/explain") == shown(service.explain(name))
    assert await rest.ask("GET", f"/jobs/{name}/logs") == {"logs": service.log(name)}
    assert (service.log(name) or "").endswith("\nhello\n")
    assert await rest.ask("GET", f"/jobs/{name}/logs?attempt=1") == {"logs": service.log(name, 1)}
    assert await rest.ask("GET", f"/jobs/{name}/logs?attempt=7") == {"logs": None}
    events = [asdict(each) for each in service.events(name)]
    assert await rest.ask("GET", f"/jobs/{name}/events") == {"events": events}
    attempts = [shown(each) for each in service.attempts(name)]
    assert await rest.ask("GET", f"/jobs/{name}/attempts") == {"attempts": attempts}
    assert await rest.ask("GET", f"/jobs/{name}/events?limit=1") == {"events": events[:1]}
    assert await rest.ask("GET", f"/events?after={events[0]['id']}") == {"events": events[1:]}
    assert await rest.ask("GET", "/jobs/find?word=greeting") == {"jobs": [shown(*service.find(name))]}


async def test_lists_are_filtered_and_paged_as_by_the_service(rest: Rest) -> None:
    names = [(await rest.submit(group=f"g{n % 2}", tags=[f"t{n}"]))["submission_id"] for n in range(4)]
    await rest.system.finished(*names)
    assert await rest.ask("GET", "/jobs") == shown(rest.service.list_jobs())
    page = await rest.ask("GET", "/jobs?limit=3")
    assert [job["submission_id"] for job in page["jobs"]] == names[:0:-1]
    rest_of_it = await rest.ask("GET", "/jobs", params={"cursor": page["next_cursor"]})
    assert [job["submission_id"] for job in rest_of_it["jobs"]] == names[:1]
    for asked, query in (
        ("group=g1", JobQuery(group="g1")),
        ("tag=t2", JobQuery(tag="t2")),
        ("state=SUCCEEDED&state=FAILED", JobQuery(states=(JobState.SUCCEEDED, JobState.FAILED))),
        ("state=QUEUED", JobQuery(states=(JobState.QUEUED,))),
        (f"text={names[0]}", JobQuery(text=names[0])),
        ("since=1", JobQuery(since=1.0)),
        ("user=nobody", JobQuery(user="nobody")),
        ("cluster=a", JobQuery(cluster="a")),
        ("heads_only=true", JobQuery(heads_only=True)),
        (f"head={names[0]}&limit=1", JobQuery(head=names[0], limit=1)),
    ):
        assert await rest.ask("GET", f"/jobs?{asked}") == shown(rest.service.list_jobs(query)), asked
    assert (await rest.ask("GET", "/counts"))["counts"]["SUCCEEDED"] == 4
    assert await rest.ask("GET", "/counts?state=QUEUED") == {"counts": rest.service.counts([JobState.QUEUED])}
    many = await rest.ask("POST", "/jobs/get-many", json={"submission_ids": [names[0], "nope"]})
    assert many == {"jobs": {names[0]: shown(rest.service.get_many(names)[names[0]])}}
    each = await rest.ask("POST", "/jobs/find-each", json={"words": names[:2]})
    assert [job["submission_id"] for job in each["jobs"]] == names[:2]


async def test_batches_and_arrays_are_accepted_whole(rest: Rest) -> None:
    batch = await rest.ask(
        "POST", "/jobs/batch", status=201, json={"jobs": [{"entrypoint": "echo 1"}, {"entrypoint": "echo 2"}]}
    )
    array = {"job": {"entrypoint": "echo {i}", "submission_id": "many"}, "indices": "0-2"}
    made = await rest.ask("POST", "/jobs/array", status=201, json=array)
    assert [job["submission_id"] for job in made["jobs"]] == ["many-0", "many-1", "many-2"]
    await rest.system.finished(*(job["submission_id"] for job in [*batch["jobs"], *made["jobs"]]))
    assert (rest.service.log("many-2") or "").endswith("\n2\n")
    one_is_wrong = {"jobs": [{"entrypoint": "echo", "submission_id": "fine"}, {"entrypoint": " "}]}
    await rest.ask("POST", "/jobs/batch", status=422, json=one_is_wrong)
    assert rest.service.get_many(["fine"]) == {}


async def test_jobs_are_stopped_and_run_again(rest: Rest) -> None:
    name = (await rest.submit("sleep 600"))["submission_id"]
    stopped = await rest.ask("POST", "/jobs/stop", json={"submission_ids": [name], "reason": "enough"})
    assert stopped["jobs"][0]["submission_id"] == name
    await rest.system.until(name, JobState.STOPPED)
    assert "enough" in rest.system.reasons(name)
    again = await rest.ask("POST", "/jobs/retry", json={"submission_ids": [name]})
    assert again["jobs"][0]["entrypoint"] == "sleep 600"
    await rest.ask("POST", "/jobs/stop", json={"submission_ids": [again["jobs"][0]["submission_id"]]})


async def test_jobs_that_have_ended_are_deleted_and_their_ids_are_free_again(rest: Rest) -> None:
    ended = [(await rest.submit(submission_id=name))["submission_id"] for name in ("one", "two", "three")]
    await rest.system.finished(*ended)
    await rest.submit("sleep 600", submission_id="long")
    refused = await rest.ask("DELETE", "/jobs/long", status=422)
    assert refused["error"]["type"] == "InvalidRequest"
    assert refused["error"]["message"].endswith("can be deleted when it has ended; stop it first")
    unknown = await rest.ask("DELETE", "/jobs/nobody", status=404)
    assert unknown["error"]["type"] == "JobNotFound"
    all_or_none = {"submission_ids": ["two", "long"]}
    await rest.ask("POST", "/jobs/delete", status=422, json=all_or_none)
    assert await rest.ask("DELETE", "/jobs/one") == {"deleted": ["one"]}
    some = await rest.ask("POST", "/jobs/delete", json={"submission_ids": ["two", "three", "two"]})
    assert some == {"deleted": ["two", "three"]}
    assert rest.service.get_many(ended) == {}
    assert not any({*ended} & {*ray.cluster.jobs} for ray in rest.system.ray.values())
    await rest.submit(submission_id="one")
    await rest.ask("POST", "/jobs/stop", json={"submission_ids": ["long"]})


async def test_clusters_leader_plan_and_drain_are_those_of_the_service(rest: Rest) -> None:
    await rest.system.finished((await rest.submit())["submission_id"])
    told = await rest.ask("POST", "/clusters/a/drain", json={"reason": "disks"})
    assert told == {"cluster": "a", "drained": True}
    by_name = {each["name"]: each for each in (await rest.ask("GET", "/clusters"))["clusters"]}
    assert set(by_name) == {"a", "b"}
    assert by_name["a"]["drain_reason"] == "disks"
    plan = await rest.ask("POST", "/plan", json={"entrypoint": "echo"})
    assert plan["cluster"] == "b"
    assert await rest.ask("POST", "/clusters/a/undrain") == {"cluster": "a", "drained": False}
    refused = await rest.ask("POST", "/clusters/aa/drain", status=422, json={})
    assert "did you mean 'a'" in refused["error"]["message"]
    leader = await rest.ask("GET", "/leader")
    assert leader["holder"] == rest.system.scheduler.holder


async def test_what_is_wrong_is_told_as_the_service_would_raise_it(rest: Rest) -> None:
    for ask in (
        ("GET", "/jobs/nope"),
        ("GET", "/jobs/nope/logs"),
        ("GET", "/jobs/nope/attempts"),
        ("GET", "/jobs/nope/explain"),
        ("GET", "/jobs/nope/logs/tail"),
    ):
        told = await rest.ask(*ask, status=404)
        assert isinstance(error_from(told), JobNotFound), ask
    told = await rest.ask("GET", "/jobs/nope", status=404)
    with pytest.raises(JobNotFound) as raised:
        rest.service.detail("nope")
    assert told == json.loads(json.dumps(error_json(raised.value)))
    await rest.submit(submission_id="taken", entrypoint="sleep 0.1")
    told = await rest.ask(
        "POST", "/jobs", status=409, json={"entrypoint": "echo other", "submission_id": "taken"}
    )
    assert told["error"]["type"] == "DuplicateSubmission"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({}, "entrypoint is missing"),
        ({"entrypoint": ["python", "x.py"]}, "write 'python x.py'"),
        ({"entrypoint": "echo", "priorty": 1}, "did you mean 'priority'?"),
        ({"entrypoint": "echo", "runtime_env": {"working_dir": "/home/ann/.ssh"}}, "a path of the machine"),
        ({"entrypoint": "echo", "self": 1}, "a job has no option 'self'"),
        ({"entrypoint": "echo \ud800"}, "Unicode"),
    ],
)
async def test_a_wrong_job_is_refused_with_the_words_of_all_doors(
    rest: Rest, job: dict[str, Any], words: str
) -> None:
    told = await rest.ask("POST", "/jobs", status=422, json=job)
    assert words in told["error"]["message"]


async def test_a_request_that_is_too_much_is_refused(rest: Rest) -> None:
    long_one = io.BytesIO(json.dumps({"entrypoint": "echo", "metadata": {"a": "x" * 2**20}}).encode())
    told = await rest.ask("POST", "/jobs", status=413, data=long_one, headers=JSON)
    assert "1048576" in told["error"]["message"]
    nested = '{"entrypoint": "echo", "runtime_env": ' + "[" * 100_000 + "]" * 100_000 + "}"
    told = await rest.ask("POST", "/plan", status=422, data=nested, headers=JSON)
    assert "levels deep" in told["error"]["message"]
    async with rest.http.get("/healthz", headers={"X-Long": "y" * 100_000}) as answer:
        assert answer.status == 431


async def test_no_page_needs_another_host(rest: Rest) -> None:
    async with rest.http.get("/docs") as answer:
        page = await answer.text()
        assert answer.status == 200
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "/api/v1/jobs/{submission_id}/logs/tail" in page
    for word in ("http://", "https://", 'src="//', 'href="//'):
        assert word not in page
    async with rest.http.get("/openapi.json") as answer:
        assert "servers" not in await answer.json()


async def test_the_same_request_twice_makes_one_job(rest: Rest) -> None:
    job = {"entrypoint": "sleep 0.1", "idempotency_key": "once"}
    answers = await asyncio.gather(*(rest.ask("POST", "/jobs", status=201, json=job) for _ in range(10)))
    assert len({answer["submission_id"] for answer in answers}) == 1
    assert len((await rest.ask("GET", "/jobs"))["jobs"]) == 1


async def test_it_is_ready_while_somebody_schedules(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        await asyncio.to_thread(system.scheduler.stop)
        alone = system.another_scheduler()
        with live(create_app(alone)) as address:
            async with aiohttp.ClientSession(address) as http:
                async with http.get("/readyz") as answer:
                    assert answer.status == 503
                    assert (await answer.json())["leader"] == "nobody schedules now"
                async with http.get("/healthz") as answer:
                    assert answer.status == 200
                await asyncio.to_thread(alone.start)

                async def is_ready() -> bool:
                    async with http.get("/readyz") as answer:
                        return answer.status == 200

                await eventually(is_ready)
        await asyncio.to_thread(alone.stop)
