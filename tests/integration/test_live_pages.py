"""Open pages hear of changes in the store without reading what has changed."""

import asyncio
from pathlib import Path

import pytest
from tests.support.system import System, fake
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.dashboard import live as module
from ray_multicluster_scheduler.dashboard.live import Live
from ray_multicluster_scheduler.service import service


async def test_a_change_wakes_the_pages_and_no_view_of_it_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, woken = [], asyncio.Event()
    monkeypatch.setattr(module, "MOST_GAP_S", 10 * PATIENCE_S)
    monkeypatch.setattr(service, "show_event", lambda *given: built.append(given))

    async def wake() -> None:
        woken.set()

    async with System(tmp_path, fake("a")) as system:
        live = Live(lambda: system.scheduler.service)
        async with live.running():
            live.listen(wake)
            await system.finished(await system.submit("echo hello"))
            await asyncio.wait_for(woken.wait(), PATIENCE_S)
    assert built == []
