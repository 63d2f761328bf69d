"""Writes moves to the store: whatever is wanted while one commit is under way goes into the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ray_multicluster_scheduler.core.events import MovesWritten
from ray_multicluster_scheduler.core.instructions import WriteMoves
from ray_multicluster_scheduler.core.placer import PLACE
from ray_multicluster_scheduler.core.supervisor import SEEN
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.log_lines import tell_moves
from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.model.job import Job

#: What is wanted within this time shares a commit: a commit of a few moves costs as much as one of many.
GATHER_S = 0.003

_Waiter = asyncio.Future[Sequence[Job]]


class MoveWriter:
    """One commit at a time. `epoch` is that of the lease; `written` and `failed` hear the results."""

    def __init__(
        self,
        context: EngineContext,
        *,
        epoch: int,
        written: Callable[[MovesWritten], None],
        failed: Callable[[WriteMoves, Exception], None],
    ) -> None:
        self._context = context
        self._epoch = epoch
        self._written = written
        self._failed = failed
        self._wanted: list[tuple[WriteMoves, _Waiter | None]] = []
        self._wake = asyncio.Event()

    def put(self, wanted: WriteMoves) -> None:
        """Write moves as soon as possible."""
        self._wanted.append((wanted, None))
        self._wake.set()

    async def write(self, wanted: WriteMoves) -> None:
        """Write moves and wait until they are on disk."""
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._wanted.append((wanted, waiter))
        self._wake.set()
        await waiter

    async def run(self) -> None:
        """Write until cancelled. A store that cannot be written, and a lost lease, end it."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_S)  # the moves of one look come one after the other
            self._wake.clear()
            batch, self._wanted = self._wanted, []
            writing = asyncio.ensure_future(self._write_all(batch))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                # The store's thread goes on, and the next leader must not overtake it; it may fail.
                await asyncio.gather(writing, return_exceptions=True)
                raise

    async def _write_all(self, batch: Sequence[tuple[WriteMoves, _Waiter | None]]) -> None:
        try:
            moved = await self._apply([wanted for wanted, _ in batch])
        except StoreError:
            raise
        except Exception as bug:  # noqa: BLE001 - of one of them: told to whoever asked for it
            if len(batch) > 1:
                for one in batch:
                    await self._write_all([one])
                return
            self._failed(batch[0][0], bug)
            _settle(batch, ())
            return
        self._written(MovesWritten(asked=[wanted for wanted, _ in batch], moved=moved))
        _settle(batch, moved)

    async def _apply(self, batch: Sequence[WriteMoves]) -> tuple[Job, ...]:
        context = self._context
        for wanted in batch:
            if wanted.occasion == SEEN:
                for move in wanted.moves:
                    context.crash_point(f"seen:{move.new.value}")
        moved = await context.offload(
            context.store.apply,
            [move for wanted in batch for move in wanted.moves],
            epoch=self._epoch,
            now=context.clock.now(),
            logs=[
                (wanted.moves[0].submission_id, wanted.moves[0].attempt, wanted.log)
                for wanted in batch
                if wanted.log is not None
            ],
            known={job_id: job for wanted in batch for job_id, job in wanted.known.items()},
        )
        if any(wanted.occasion == PLACE for wanted in batch):
            context.crash_point("place:written")
        tell_moves(moved)
        return moved


def _settle(batch: Sequence[tuple[WriteMoves, _Waiter | None]], moved: Sequence[Job]) -> None:
    for _, waiter in batch:
        if waiter is not None and not waiter.done():
            waiter.set_result(moved)
