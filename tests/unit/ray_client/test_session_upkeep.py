"""Cleaning up after sessions goes on beside them, and is heard of if it fails."""

from typing import Any

import pytest

from ray_multicluster_scheduler.asyncio_tools import Background
from ray_multicluster_scheduler.ray_client.sessions import SessionUpkeep


async def test_a_failure_in_the_background_is_logged_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background, nobody = Background(), Any
    upkeep = SessionUpkeep(nobody, nobody, {}, background)  # type: ignore[arg-type]

    async def fails() -> None:
        raise RuntimeError("a bug")

    upkeep.in_background(fails())
    await background.close(grace_s=60.0)
    (record,) = caplog.records
    assert "after a session" in record.getMessage()
    assert record.exc_info is not None
