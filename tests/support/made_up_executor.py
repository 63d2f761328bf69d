"""An executor that another package could bring: its attempts are played in this process.

It costs a cluster nothing. It needs no driver slot, keeps a log, and is found by its entry point.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass

from ray_multicluster_scheduler.errors import ClusterRefused, RemoteJobNotFound
from ray_multicluster_scheduler.executors.contract import Capabilities, ExecutorKind, Site
from ray_multicluster_scheduler.model.execution import (
    AttemptStatus,
    FailureKind,
    Inventory,
    InventoryRow,
    Sighting,
    StartRequest,
)
from ray_multicluster_scheduler.testing.fake_cluster import Run, RunRequest, ScriptedRunner


@dataclass
class Played:
    request: StartRequest
    run: Run
    end: asyncio.Task[int]
    stopped: bool = False

    def sighting(self) -> Sighting:
        status, code = AttemptStatus.RUNNING, None
        if self.end.done():
            code = self.end.result()
            status = AttemptStatus.FAILED if code else AttemptStatus.SUCCEEDED
            status = AttemptStatus.STOPPED if self.stopped else status
        return Sighting(
            remote_id=self.request.remote_id,
            status=status,
            exit_code=code,
            failure=FailureKind.USER if status is AttemptStatus.FAILED else None,
            good_end="it was played to its end",
            metadata=self.request.metadata,
        )


class MadeUpExecutor:
    def __init__(self, site: Site) -> None:
        self._name = site.connection.spec.name
        self._played: dict[str, Played] = {}

    async def start(self, request: StartRequest) -> None:
        if request.remote_id not in self._played:
            run = await ScriptedRunner().start(
                RunRequest(submission_id=request.remote_id, entrypoint=request.entrypoint)
            )
            self._played[request.remote_id] = Played(request, run, asyncio.create_task(run.wait()))

    def _of(self, remote_id: str) -> Played:
        if remote_id not in self._played:
            raise RemoteJobNotFound(self._name, f"nothing of the name {remote_id!r} was played", status=404)
        return self._played[remote_id]

    async def get(self, remote_id: str) -> Sighting:
        return self._of(remote_id).sighting()

    async def observe(self, remote_ids: Collection[str]) -> Mapping[str, Sighting]:
        return {each: self._played[each].sighting() for each in remote_ids if each in self._played}

    async def inventory(self, keep: Callable[[InventoryRow], bool] = lambda _: True) -> Inventory:
        seen = [played.sighting() for played in self._played.values()]
        kept = [each for each in seen if keep(InventoryRow(each.remote_id, each.status, each.metadata))]
        return Inventory(sightings=tuple(kept), remembered=len(seen))

    async def stop(self, remote_id: str) -> bool:
        played = self._of(remote_id)
        runs = not played.end.done()
        if runs:
            played.stopped = True
            played.run.kill()
        return runs

    async def delete(self, remote_id: str) -> None:
        if not self._of(remote_id).end.done():
            raise ClusterRefused(self._name, "it has not ended", status=400)
        del self._played[remote_id]

    async def log(self, remote_id: str, *, last_bytes: int = 2**20) -> str:
        return self._of(remote_id).run.log()[-last_bytes:]

    async def follow_log(self, remote_id: str) -> AsyncIterator[str]:
        await self._of(remote_id).end
        yield await self.log(remote_id)


MADE_UP = ExecutorKind(
    name="made-up",
    can=Capabilities(needs_driver_slot=False, carries_package=False),
    open=MadeUpExecutor,
)
