"""What every executor must keep: `EXECUTOR_CHECKS`, for ours and for those of other packages.

@pytest.mark.parametrize("check", EXECUTOR_CHECKS, ids=lambda check: check.__name__)
async def test_it_keeps_the_contract(check):
    await check(ExecutorScene(MyExecutor(...), CAN))
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ray_multicluster_scheduler.errors import ClusterRefused, RemoteJobExists, RemoteJobNotFound
from ray_multicluster_scheduler.executors.contract import Capabilities, Executor
from ray_multicluster_scheduler.model.execution import AttemptStatus, Sighting, StartRequest
from ray_multicluster_scheduler.model.result import TOO_LARGE, LeftResult

#: Between two looks at an attempt, and how long it may take to end.
LOOK_S = 0.02
PATIENCE_S = 120.0
PRINTS = "hello"
MARKS = {"made-by": "the contract"}


class ExecutorScene:
    """An executor on a cluster. Override the methods where its attempts need more than a `StartRequest`."""

    def __init__(self, executor: Executor, can: Capabilities) -> None:
        self.executor = executor
        self.can = can

    async def begin(self, *, ends: bool) -> str:
        """Start an attempt and return its id: it ends well soon, or it runs until it is stopped."""
        remote_id = f"sub_{uuid.uuid4().hex}"
        entrypoint = f"echo {PRINTS}" if ends else "sleep 600"
        await self.executor.start(StartRequest(remote_id=remote_id, entrypoint=entrypoint, metadata=MARKS))
        return remote_id

    async def stop(self, remote_id: str) -> None:
        """Have an attempt stopped."""
        await self.executor.stop(remote_id)

    async def seen(self, remote_id: str, *wanted: AttemptStatus) -> Sighting:
        """Wait until an attempt has one of these statuses."""
        ends_at = asyncio.get_running_loop().time() + PATIENCE_S
        while (sighting := await self.executor.get(remote_id)).status not in wanted:
            assert not sighting.status.final, f"it is {sighting.status.value}: {sighting.message}"
            assert asyncio.get_running_loop().time() < ends_at, f"it is still {sighting.status.value}"
            await asyncio.sleep(LOOK_S)
        return sighting


async def an_attempt_ends_well(scene: ExecutorScene) -> None:
    """It is seen until its end, by `get` and by `observe` alike."""
    remote_id = await scene.begin(ends=True)
    sighting = await scene.seen(remote_id, AttemptStatus.SUCCEEDED)
    assert (sighting.remote_id, sighting.failure) == (remote_id, None)
    assert sighting.good_end
    found = await scene.executor.observe([remote_id])
    assert found[remote_id].status is AttemptStatus.SUCCEEDED
    assert found[remote_id].metadata == sighting.metadata


async def an_attempt_carries_its_marks(scene: ExecutorScene) -> None:
    """The scheduler finds its own attempts by the metadata of the request."""
    sighting = await scene.executor.get(await scene.begin(ends=True))
    assert sighting.metadata
    if not scene.can.begun_by_program:
        assert sighting.metadata == MARKS


async def what_is_not_there_is_said(scene: ExecutorScene) -> None:
    """No attempt is made up, and one that is there is not hidden by it."""
    there, missing = await scene.begin(ends=False), "sub_" + "0" * 32
    assert set(await scene.executor.observe([there, missing])) == {there}
    assert await scene.executor.observe([]) == {}
    try:
        await scene.executor.get(missing)
    except RemoteJobNotFound:
        pass
    else:
        raise AssertionError("`get` must raise RemoteJobNotFound")
    await scene.stop(there)


async def an_id_is_started_once(scene: ExecutorScene) -> None:
    """An answer may get lost: then the same attempt is started again."""
    remote_id = await scene.begin(ends=False)
    with suppress(RemoteJobExists):
        await scene.executor.start(StartRequest(remote_id=remote_id, entrypoint="exit 1", metadata=MARKS))
    await scene.seen(remote_id, AttemptStatus.RUNNING)
    await scene.stop(remote_id)


async def an_attempt_is_stopped(scene: ExecutorScene) -> None:
    """What runs is stopped soon."""
    remote_id = await scene.begin(ends=False)
    await scene.seen(remote_id, AttemptStatus.RUNNING)
    await scene.stop(remote_id)
    await scene.seen(remote_id, AttemptStatus.STOPPED)


async def a_log_is_kept_or_empty(scene: ExecutorScene) -> None:
    """`keeps_log` says whether there is one."""
    remote_id = await scene.begin(ends=True)
    await scene.seen(remote_id, AttemptStatus.SUCCEEDED)
    log = await scene.executor.log(remote_id)
    followed = "".join([piece async for piece in scene.executor.follow_log(remote_id)])
    assert log == followed
    assert (PRINTS in log) == scene.can.keeps_log


async def a_result_is_what_an_attempt_left(scene: ExecutorScene) -> None:
    """`leaves_result` says whether there is a place for one; the bytes come back as they were left."""
    if not scene.can.leaves_result:
        return
    left = {
        f"sub_{uuid.uuid4().hex}": command
        for command in ("printf 'a\\000\\377\\n' > {}", "true", "head -c 2000000 /dev/zero > {}")
    }
    for remote_id, command in left.items():
        place = await scene.executor.result_place(remote_id, session_name=None)
        assert place is not None
        await scene.executor.start(StartRequest(remote_id=remote_id, entrypoint=command.format(place)))
    found = []
    for remote_id in left:
        await scene.seen(remote_id, AttemptStatus.SUCCEEDED)
        found.append(await scene.executor.result(remote_id))
    assert found == [LeftResult(content=b"a\0\xff\n"), None, TOO_LARGE]


async def an_attempt_that_has_ended_is_deleted(scene: ExecutorScene) -> None:
    """`deletable` says whether that is needed; one that runs is never deleted."""
    if not scene.can.deletable:
        return
    running, ended = await scene.begin(ends=False), await scene.begin(ends=True)
    try:
        await scene.executor.delete(running)
    except ClusterRefused:
        pass
    else:
        raise AssertionError("`delete` must refuse an attempt that has not ended")
    await scene.seen(ended, AttemptStatus.SUCCEEDED)
    await scene.executor.delete(ended)
    assert set(await scene.executor.observe([running, ended])) == {running}
    await scene.stop(running)


async def an_inventory_has_what_was_wanted(scene: ExecutorScene) -> None:
    """`keep` sees each entry, and chooses."""
    remote_id = await scene.begin(ends=False)
    listed = {each.remote_id for each in (await scene.executor.inventory()).sightings}
    chosen = await scene.executor.inventory(lambda row: row.remote_id == remote_id)
    assert {each.remote_id for each in chosen.sightings} == listed & {remote_id}
    assert remote_id in listed or scene.can.begun_by_program
    await scene.stop(remote_id)


EXECUTOR_CHECKS: tuple[Callable[[ExecutorScene], Awaitable[None]], ...] = (
    an_attempt_ends_well,
    an_attempt_carries_its_marks,
    what_is_not_there_is_said,
    an_id_is_started_once,
    an_attempt_is_stopped,
    a_log_is_kept_or_empty,
    a_result_is_what_an_attempt_left,
    an_attempt_that_has_ended_is_deleted,
    an_inventory_has_what_was_wanted,
)
