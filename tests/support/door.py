"""A server with two users and tokens of every role; nothing is scheduled. And its routes, all of them."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from tests.support.serving import live

from ray_multicluster_scheduler.config import parse_config
from ray_multicluster_scheduler.config.schema import ServerSettings
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.server.door import AllowList, Limits
from ray_multicluster_scheduler.server.metrics import HttpMetrics
from ray_multicluster_scheduler.server.ray_route import RayRoute
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.request import JobRequest

CLUSTERS = "clusters:\n  a:\n    head_address: 127.0.0.1:1\n    max_resources: {CPU: 64, GPU: 8}\n"
#: A job of ann's, which nobody else may see.
HERS = "hers"
ROOT = Caller(user="root", role=Role.ADMIN)
ANYBODY = Caller(user="anybody")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One way to ask a server."""

    method: str
    path: str
    role: Role | None

    @property
    def websocket(self) -> bool:
        return self.method == "WEBSOCKET"


def routes(app: FastAPI) -> Iterator[Asked]:
    """Yield every method of every route, with the role that it needs; None: it asks for none."""
    for route in _flat(app.routes):
        if isinstance(route, RayRoute):
            for method, (needed, _) in sorted(route.handlers.items()):
                yield Asked(method=method, path=route.path, role=needed)
            continue
        found = [getattr(each.call, "role", None) for each in _dependencies(route)]
        role = next((each for each in found if each is not None), None)
        for method in sorted(getattr(route, "methods", None) or {"WEBSOCKET"}):
            yield Asked(method=method, path=route.path, role=role)


def _flat(found: Iterable[Any]) -> Iterator[Any]:
    for route in found:
        inner = getattr(route, "original_router", None)
        if inner is None:
            yield route
        else:
            yield from _flat(inner.routes)


def _dependencies(route: Any) -> list[Any]:
    return list(getattr(getattr(route, "dependant", None), "dependencies", []))


class Door:
    """A server at work, and clients of it."""

    def __init__(self, scheduler: EmbeddedScheduler, app: FastAPI, http: aiohttp.ClientSession) -> None:
        self.scheduler = scheduler
        self.app = app
        self.http = http

    def token(self, user: str, role: Role, **options: Any) -> str:
        """Make a token."""
        return self.scheduler.tokens.create(user, role, by=ROOT, **{"expires_s": None, **options}).token

    def submit(self, user: str, submission_id: str, **request: Any) -> None:
        """Accept a job of a user."""
        service = self.scheduler.service.as_caller(Caller(user=user, role=Role.SUBMIT))
        service.submit([JobRequest(entrypoint="true", user=user, submission_id=submission_id, **request)])

    async def ask(
        self, method: str, path: str, token: str | None = None, **options: Any
    ) -> tuple[int, str, aiohttp.typedefs.LooseHeaders]:
        """Ask, and return status, text and headers; a websocket's status is that of its handshake."""
        headers = {**({} if token is None else {"Authorization": f"Bearer {token}"})}
        headers.update(options.pop("headers", {}))
        if method == "WEBSOCKET":
            try:
                async with self.http.ws_connect(path, headers=headers) as socket:
                    await socket.close()
                    return 101, "", {}
            except aiohttp.WSServerHandshakeError as error:
                return error.status, error.message, dict(error.headers or {})
        async with self.http.request(method, path, headers=headers, **options) as answer:
            return answer.status, await answer.text(), dict(answer.headers)


@asynccontextmanager
async def door(
    tmp_path: Path, *, options: ServerOptions | None = None, config: str = CLUSTERS
) -> AsyncIterator[Door]:
    """Serve on loopback; there is no token yet."""
    scheduler = EmbeddedScheduler(
        parse_config(config, tmp_path / "clusters.yaml"), directory=tmp_path / "state", environ={}
    )
    app = create_app(scheduler, options)
    try:
        with live(app) as address:
            async with aiohttp.ClientSession(address) as http:
                yield Door(scheduler, app, http)
    finally:
        await asyncio.to_thread(scheduler.stop)


class Trusting:
    """Knows callers by what they show, which is their name."""

    def __init__(self, callers: Mapping[str, Caller]) -> None:
        self._callers = callers

    async def identify(self, shown: str, _address: str | None) -> Caller:
        return self._callers[shown]


def open_door(*callers: Caller, nobody: Caller = ANYBODY, **options: Any) -> dict[str, Any]:
    """Return the options of a `Door` for these callers; `nobody`: who shows nothing."""
    return {
        "callers": Trusting({"": nobody, **{caller.user: caller for caller in callers}}),
        "allow_list": AllowList(bind="127.0.0.1", hosts=(), origins=()),
        "limits": Limits(ServerSettings()),
        "metrics": HttpMetrics(CollectorRegistry()),
        **options,
    }
