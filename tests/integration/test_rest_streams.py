"""Streams of the REST interface: they go on where they broke off, and end with the server."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fastapi import FastAPI
from tests.integration.test_rest import Rest
from tests.support.serving import live
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.app import create_app


class Streaming(Rest):
    app: FastAPI

    async def events(self, answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, int | None, Any]]:
        """Yield name, id and data of each server-sent event."""
        name, number = "", None
        async for line in answer.content:
            word, _, value = line.decode().rstrip("\n").partition(": ")
            if word == "event":
                name = value
            elif word == "id":
                number = int(value)
            elif word == "data":
                yield name, number, json.loads(value)
                name = ""

    def end(self) -> None:
        """Do what the server does first when it is told to stop."""
        stopping: asyncio.Event = self.app.state.stopping
        stopping._loop.call_soon_threadsafe(stopping.set)  # type: ignore[attr-defined]


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Streaming]:
    async with System(tmp_path, fake("a"), fake("b")) as system:
        app = create_app(system.scheduler)
        with live(app) as address:
            async with aiohttp.ClientSession(address) as http:
                found = Streaming(system, http)
                found.app = app
                yield found


async def test_changes_are_told_until_all_jobs_have_ended(rest: Streaming) -> None:
    names = [(await rest.submit("sleep 0.3"))["submission_id"] for _ in range(2)]
    body = {"submission_ids": names, "tick_s": 0.05}
    async with rest.http.post("/api/v1/jobs/changes", json=body) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        told = [data["jobs"] async for _, _, data in rest.events(answer)]
    assert set(told[0]) == set(names)
    assert {} in told, "no sign of life"
    last: dict[str, Any] = {}
    for jobs in told:
        assert all(last.get(name) != job for name, job in jobs.items()), "told twice"
        last |= jobs
    assert {job["state"] for job in last.values()} == {"SUCCEEDED"}


async def test_a_wait_that_is_over_is_told_as_an_error(rest: Streaming) -> None:
    name = (await rest.submit("sleep 600"))["submission_id"]
    body = {"submission_ids": [name], "timeout_s": 0.2}
    async with rest.http.post("/api/v1/jobs/changes", json=body) as answer:
        told = [(event, data) async for event, _, data in rest.events(answer)]
    assert told[-1][0] == "error"
    assert told[-1][1]["error"]["type"] == "WaitTimeout"
    assert told[-1][1]["error"]["details"]["submission_ids"] == [name]
    await rest.ask("POST", "/jobs/changes", status=404, json={"submission_ids": ["nope"]})


async def test_events_go_on_where_they_broke_off(rest: Streaming) -> None:
    first = (await rest.submit("echo 1"))["submission_id"]
    await rest.system.until(first, JobState.SUCCEEDED)
    seen = []
    async with rest.http.get("/api/v1/events/stream?after=0") as answer:
        async for _, number, data in rest.events(answer):
            assert number == data["id"]
            seen.append(data)
            if len(seen) == 2:
                break
    second = (await rest.submit("echo 2"))["submission_id"]
    await rest.system.until(second, JobState.SUCCEEDED)
    resume = {"Last-Event-ID": str(seen[-1]["id"])}
    async with rest.http.get("/api/v1/events/stream", headers=resume) as answer:
        async for _, _, data in rest.events(answer):
            seen.append(data)
            if (data["submission_id"], data["new"]) == (second, "SUCCEEDED"):
                break
    assert seen == [asdict(each) for each in rest.service.events()]
    await rest.ask("GET", "/events/stream", status=422, headers={"Last-Event-ID": "-1"})


async def test_news_come_when_something_happens_and_hold_no_thread(rest: Streaming) -> None:
    known = (await rest.ask("GET", "/news?after=0"))["newest"]
    waits = [
        asyncio.create_task(rest.ask("GET", f"/news?after={known}&timeout_s=60"))
        for _ in range(60)  # more than there are threads
    ]
    name = (await rest.submit("echo"))["submission_id"]
    newest = {each["newest"] for each in await asyncio.gather(*waits)}
    assert min(newest) > known
    await rest.system.until(name, JobState.SUCCEEDED)
    last = (await rest.ask("GET", "/news?after=0"))["newest"]
    assert (await rest.ask("GET", f"/news?after={last}&timeout_s=0.1"))["newest"] == last


async def test_a_tail_is_the_whole_log_and_can_be_taken_up(rest: Streaming) -> None:
    name = (await rest.submit("echo hello"))["submission_id"]
    path = f"/api/v1/jobs/{name}/logs/tail"
    async with rest.http.get(path) as answer:
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        text = await answer.text()
    assert text.endswith("\nhello\n")
    assert text == rest.service.log(name)
    accept = {"Accept": "text/event-stream"}
    async with rest.http.get(path, headers=accept) as answer:
        told = [each async for each in rest.events(answer)]
    assert "".join(data["text"] for event, _, data in told if event != "end") == text
    assert told[-1][0] == "end"
    assert told[-1][1] == len(text)
    async with rest.http.get(path, headers={**accept, "Last-Event-ID": str(len(text) - 3)}) as answer:
        told = [each async for each in rest.events(answer)]
    assert [data.get("text") for _, _, data in told] == [text[-3:], None]


async def test_streams_end_with_the_server_so_that_clients_come_back(rest: Streaming) -> None:
    name = (await rest.submit("sleep 600"))["submission_id"]
    await rest.system.until(name, JobState.RUNNING)
    body = {"submission_ids": [name]}
    async with (
        rest.http.post("/api/v1/jobs/changes", json=body) as changes,
        rest.http.get("/api/v1/events/stream?after=0") as events,
        rest.http.get(f"/api/v1/jobs/{name}/logs/tail") as tail,
    ):
        await changes.content.readline()
        await events.content.readuntil(b"SUBMITTED")
        rest.end()
        assert b"event: error" not in await changes.content.read()
        assert b"event: error" not in await events.content.read()
        with pytest.raises(
            aiohttp.ClientPayloadError
        ):  # cut off: a whole answer would mean that the job ended
            await tail.content.read()
    rest.service.stop([name])


async def test_whoever_goes_away_leaves_nothing_behind(rest: Streaming) -> None:
    name = (await rest.submit("sleep 600"))["submission_id"]
    hub = rest.system.scheduler.parts.hub
    for _ in range(5):
        async with rest.http.get(f"/api/v1/jobs/{name}/logs/tail"):
            pass
        async with rest.http.post("/api/v1/jobs/changes", json={"submission_ids": [name]}):
            pass
        async with rest.http.get("/api/v1/events/stream"):
            pass
    await eventually(lambda: not hub._subscribers)
    rest.service.stop([name])
