"""The scheduler is killed with -9 around the steps of real clusters: nothing is lost or run twice."""

from pathlib import Path

import pytest
from tests.support.crash_scene import Scene

from ray_multicluster_scheduler.local import Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

SETTINGS = {"probe_interval_s": 1.0, "poll_interval_s": 0.5}


@pytest.mark.parametrize(
    "point",
    [
        "place:written",  # S4
        "send:after-post",  # S5
        "seen:RUNNING",  # S6
        "seen:SUCCEEDED",  # S7
    ],
)
async def test_a_crash_on_the_way_loses_nothing_and_repeats_nothing(
    point: str, sandbox: Sandbox, tmp_path: Path
) -> None:
    clusters = {
        name: {"head_address": head.client_address, "dashboard": head.dashboard}
        for name, head in sandbox.heads.items()
    }
    scene = Scene(tmp_path, clusters, SETTINGS)
    ids = [f"{tmp_path.name}-{number}" for number in range(3)]
    said = await scene.crash(f"{point}:1", *(scene.job(each, seconds=1) for each in ids))
    await scene.recover(*(scene.job(each, seconds=1) for each in ids if f"accepted {each}" not in said))
    assert scene.all_succeeded_once(*ids)
    assert scene.overlapped() == []
