"""Behind the door: what clusters hear of callers, and what stock Ray clients hear of the door."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from ray.dashboard.modules.dashboard_sdk import AuthenticationError  # type: ignore[attr-defined]
from ray.job_submission import JobSubmissionClient
from tests.support.door import ROOT
from tests.support.serving import live
from tests.support.system import System

from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.testing import FakeRay, ScriptedRunner

CLUSTER_TOKEN = "the-clusters-own-token"


class HearingRay(FakeRay):
    """A cluster that remembers all that it was sent."""

    def __init__(self) -> None:
        super().__init__(name="a", token=CLUSTER_TOKEN, runner=ScriptedRunner())
        self.heard: list[str] = []

    async def _answer(self, request: web.Request, handler: Callable[..., Any]) -> web.StreamResponse:
        body = await request.read() if request.can_read_body else b""
        self.heard.append(f"{request.method} {request.path_qs} {dict(request.headers)} {body!r}")
        return await super()._answer(request, handler)


@asynccontextmanager
async def serving(tmp_path: Path, ray: FakeRay) -> AsyncIterator[tuple[System, str]]:
    async with System(tmp_path, ray) as system:
        with live(create_app(system.scheduler)) as address:
            yield system, address


def token_for(system: System, role: Role) -> str:
    return system.scheduler.tokens.create("ann", role, expires_s=None, by=ROOT).token


async def test_credentials_of_callers_end_at_the_server(tmp_path: Path) -> None:
    ray = HearingRay()
    async with serving(tmp_path, ray) as (system, address):
        token = token_for(system, Role.SUBMIT)
        shown = {
            "Authorization": f"Bearer {token}",
            "X-Ray-Authorization": f"Bearer {token}",
            "Cookie": f"ray-authentication-token={token}",
            "X-Own": "an-own-header",
        }
        async with aiohttp.ClientSession(address, headers=shown) as http:
            async with http.post("/api/jobs/", json={"entrypoint": "echo hello"}) as answer:
                job_id = (await answer.json())["submission_id"]
            await system.finished(job_id)
            async with http.get(f"/api/jobs/{job_id}/logs") as answer:
                assert "hello" in (await answer.json())["logs"]
        heard = "\n".join(ray.heard)

    assert "POST /api/jobs/" in heard
    assert all(f"Bearer {CLUSTER_TOKEN}" in each for each in ray.heard)
    assert token not in heard
    assert token.split("_")[1] not in heard
    assert "an-own-header" not in heard
    assert "Cookie" not in heard


async def test_stock_clients_tell_a_wrong_token_from_a_role_that_is_too_low(tmp_path: Path) -> None:
    def client(token: str | None) -> JobSubmissionClient:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return JobSubmissionClient(address, headers=headers)

    async with serving(tmp_path, FakeRay(name="a", runner=ScriptedRunner())) as (system, address):
        reader, submitter = token_for(system, Role.READ), token_for(system, Role.SUBMIT)
        for token in (None, reader + "x"):
            with pytest.raises(AuthenticationError):
                await asyncio.to_thread(client, token)
        looking = await asyncio.to_thread(client, reader)
        assert await asyncio.to_thread(looking.list_jobs) == []
        with pytest.raises(RuntimeError, match=r"405.*needs the role 'submit'") as refused:
            await asyncio.to_thread(looking.submit_job, entrypoint="true")
        assert not isinstance(refused.value, AuthenticationError)
        working = await asyncio.to_thread(client, submitter)
        job_id = await asyncio.to_thread(working.submit_job, entrypoint="true")

        assert system.scheduler.store.jobs.get(job_id).spec.user == "ann"
