"""The server under test as a program: fake clusters, the engine, and the pages. NiceGUI keeps its state in
its modules, so each server needs a process of its own.

It prints one line of JSON when it is up, then answers each line of JSON on stdin, `[name, arguments]`, with
another one. It ends when stdin does.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.support.serving import serving
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.server.server_options import ServerOptions
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.views import ClusterView
from ray_multicluster_scheduler.testing import FakeRay

ROOT = Caller(user="root", role=Role.ADMIN)
CLUSTERS: dict[str, dict[str, Any]] = {
    "east": {
        "tags": ("cpu",),
        "runtime_env": {"conda": "ts", "env_vars": {"home_dir": "/home/ann", "API_TOKEN": "hush-hush"}},
    },
    "west": {"prefer": True, "tags": ("fast",)},
}


class World:
    """What a test may ask for. Every public method is a command."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._scheduler = system.scheduler

    async def token(self, user: str, role: str) -> dict[str, str]:
        """Make a token."""
        made = self._scheduler.tokens.create(user, Role.named(role), expires_s=None, by=ROOT)
        return {"id": made.id, "secret": made.token}

    async def revoke(self, token_id: str) -> None:
        """Revoke a token."""
        await asyncio.to_thread(self._scheduler.tokens.revoke, token_id, by=ROOT)

    async def submit(self, jobs: list[dict[str, Any]]) -> list[str]:
        """Accept jobs."""
        return await self._system.submit_many(jobs)

    async def until(self, submission_id: str, states: list[str]) -> str:
        """Wait until a job is in one of these states."""
        job = await self._system.until(submission_id, *(JobState(state) for state in states))
        return job.state.value

    async def stop(self, submission_ids: list[str]) -> None:
        """Stop jobs, as somebody else would."""
        await asyncio.to_thread(self._scheduler.service.stop, submission_ids, reason="the test wants it")

    async def drain(self, cluster: str, reason: str) -> None:
        """Drain a cluster; without a reason, undo that."""
        service = self._scheduler.service
        await asyncio.to_thread(service.set_drained, cluster, drained=bool(reason), reason=reason)

    async def go_dark(self, cluster: str) -> None:
        """Let a cluster refuse connections."""
        await self._system.ray[cluster].go_dark()

    async def fail(self, cluster: str, words: str) -> None:
        """Let a cluster answer everything with an error and these words."""
        self._system.ray[cluster].fail(500, words=words)

    async def come_back(self, cluster: str) -> None:
        """End both."""
        self._system.ray[cluster].heal()
        await self._system.ray[cluster].come_back()

    async def until_health(self, cluster: str, health: str) -> str:
        """Wait until a cluster is seen so; return what is said of it."""

        def seen() -> ClusterView | None:
            (found,) = (each for each in self._scheduler.service.clusters() if each.name == cluster)
            return found if found.health.value == health else None

        return (await eventually(seen)).problem or ""

    async def changed(self) -> dict[str, Any]:
        """All that somebody without rights must not change."""
        return await asyncio.to_thread(self._changed)

    def _changed(self) -> dict[str, Any]:
        scheduler = self._scheduler
        jobs = scheduler.service.list_jobs().jobs
        return {
            "jobs": sorted((job.submission_id, job.state.value, job.stopping) for job in jobs),
            "audit": [(each.user, each.action, each.target) for each in scheduler.access.audit(limit=10_000)],
            "drained": sorted(each.name for each in scheduler.service.clusters() if each.drained),
            "tokens": sorted((each.id, each.revoked_at is None) for each in scheduler.tokens.list_all()),
        }


async def run(directory: Path, *, tokens: bool, certificate: Path | None) -> None:
    """Serve until stdin ends."""
    rays: list[FakeRay] = [fake("east", 4), fake("west", 4, gpus=2)]
    async with System(directory, *rays, clusters=CLUSTERS) as system:
        options = ServerOptions(dashboard=True, ssl_certfile=certificate, ssl_keyfile=certificate)
        world = World(system)
        async with serving(create_app(system.scheduler, options), certificate=certificate) as address:
            roles = list(Role) if tokens else []
            _say(
                {
                    "address": address,
                    "tokens": {role.word: await world.token(f"{role.word}er", role.word) for role in roles},
                }
            )
            while line := await asyncio.to_thread(sys.stdin.readline):
                name, arguments = json.loads(line)
                _say(await getattr(world, name)(**arguments))


def _say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--open", action="store_true", help="make no tokens")
    parser.add_argument("--certificate", type=Path)
    asked = parser.parse_args()
    asyncio.run(run(asked.directory, tokens=not asked.open, certificate=asked.certificate))
