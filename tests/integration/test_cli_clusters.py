"""`raymc clusters` shows what is there, and calls unknown what it does not know."""

import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import a_cluster
from tests.support.raymc import environment, in_terminal, raymc, screen, write_config

from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.ray_api.http_connection import HttpConnection
from ray_multicluster_scheduler.testing.fake_cluster import ScriptedRunner
from ray_multicluster_scheduler.testing.fake_ray import FakeRay

#: Nothing listens on the discard port.
REFUSED = a_cluster("refused", dashboard="http://127.0.0.1:9", head_address="127.0.0.1:9")


async def a_good_one(stack: AsyncExitStack, **changes: Any) -> ClusterSpec:
    """Start a cluster with 8 CPUs of which 6 are used, no GPU, 16 GiB, and one running job."""
    fake = FakeRay(name="good", cpus=8, memory=16 * GIB, runner=ScriptedRunner())
    await stack.enter_async_context(fake)
    fake.use({"CPU": 6.0})
    async with HttpConnection(fake.spec()) as connection:
        await RayJobsExecutor(connection).start(StartRequest(remote_id="j1", entrypoint="sleep 1000"))
    return fake.spec(**changes)


@pytest.mark.parametrize("columns", [80, 140])
async def test_the_table_shows_health_use_and_versions_in_any_width(tmp_path: Path, columns: int) -> None:
    async with AsyncExitStack() as stack:
        good = await a_good_one(stack, tags=("linux", "big"), drained=True)
        config = write_config(tmp_path, [good, REFUSED])
        done = await raymc("clusters", "--config", config, environ=environment(**screen(columns)))
    assert (done.code, done.err) == (0, "")
    for words in (
        "good",
        "healthy",
        "drained",
        "6/8",
        "0/16 GiB",
        "0/100 ours",
        "2.60.0",
        "3.11.7",
        "linux, big",
    ):
        assert words in done.out, words
    assert "refused: connection refused at http://127.0.0.1:9" in done.out
    assert max(map(len, done.out.splitlines())) <= columns


@pytest.mark.parametrize("columns", [80, 140, 0])
async def test_what_another_scheduler_has_claimed_is_told(tmp_path: Path, columns: int) -> None:
    metadata = {"raymc.origin": "another store", "raymc.claim": '{"CPU":1.5}'}
    async with AsyncExitStack() as stack:
        good = await a_good_one(stack)
        async with HttpConnection(good) as connection:
            await RayJobsExecutor(connection).start(
                StartRequest(remote_id="j2", entrypoint="sleep 1000", metadata=metadata)
            )
        config = write_config(tmp_path, [good])
        done = await raymc(
            "clusters", "--config", config, environ=environment(**(screen(columns) if columns else {}))
        )
    assert (done.code, done.err) == (0, "")
    assert "good: 1.5 CPU claimed by another scheduler" in done.out


async def test_a_cluster_that_does_not_answer_is_unknown_and_never_zero(tmp_path: Path) -> None:
    config = write_config(tmp_path, [REFUSED])
    done = await raymc("clusters", "--config", config, environ=environment())
    (line,) = [line for line in done.out.splitlines() if line.strip().startswith("refused ")]
    assert line.split() == [
        "refused",
        "unhealthy",
        "no",
        *["unknown", "0", "unknown", "0", "unknown", "0GiB"],
        *["unknown", "0/50"],
        *["unknown"] * 3,
        "-",
    ]


async def test_without_usage_the_total_is_shown_and_the_use_is_unknown(tmp_path: Path) -> None:
    async with FakeRay(name="a", cpus=4) as fake:
        fake.fail(500, only="/api/cluster_status")
        config = write_config(tmp_path, [fake.spec()])
        done = await raymc("clusters", "--config", config, environ=environment())
    assert "unknown/4 " in done.out


async def test_json_has_everything_and_null_for_unknown(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        config = write_config(tmp_path, [await a_good_one(stack), REFUSED])
        done = await raymc("clusters", "--json", "--config", config, environ=environment())
    good, refused = json.loads(done.out)
    assert (good["name"], good["health"], good["problem"]) == ("good", "HEALTHY", None)
    assert (good["total"]["CPU"], good["used"]["CPU"], good["running_jobs"]) == (8.0, 6.0, 1)
    assert good["max_running_jobs"] == 100
    assert good["nodes"][0]["alive"] is True
    assert (refused["health"], refused["total"], refused["running_jobs"]) == ("UNHEALTHY", None, None)


async def test_output_without_unicode_is_plain_ascii(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        config = write_config(tmp_path, [await a_good_one(stack), REFUSED])
        plain = environment(PYTHONIOENCODING="ascii", **screen(140))
        done = await raymc("clusters", "--config", config, environ=plain)
    assert (done.code, done.out.isascii()) == (0, True)
    assert "######--" in done.out


async def test_the_live_view_follows_a_change_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    async with FakeRay(name="a", cpus=4) as fake:
        config = write_config(tmp_path, [fake.spec()], probe_interval_s=0.1)
        async with in_terminal(
            "clusters", "--watch", "--config", config, environ=environment(80)
        ) as terminal:
            await terminal.until("0/4")
            fake.use({"CPU": 3.0})
            await terminal.until("3/4")
            terminal.process.send_signal(signal.SIGINT)
            assert await terminal.process.wait() == 0
            assert "Traceback" not in terminal.seen


async def test_watching_with_json_writes_a_line_per_refresh(tmp_path: Path) -> None:
    async with FakeRay(name="a", cpus=4) as fake:
        config = write_config(tmp_path, [fake.spec()], probe_interval_s=0.1)
        watch = ("clusters", "--watch", "--json", "--config", config)
        async with in_terminal(*watch, environ=environment()) as terminal:
            await terminal.until("]\r\n[")
            terminal.process.send_signal(signal.SIGINT)
            assert await terminal.process.wait() == 0
    first = terminal.seen.splitlines()[0]
    assert [cluster["health"] for cluster in json.loads(first)] == ["HEALTHY"]


async def test_without_a_configuration_the_exit_code_is_2_and_the_way_out_is_named(tmp_path: Path) -> None:
    home = environment(RAY_MULTICLUSTER_HOME=str(tmp_path))
    done = await raymc("clusters", "--config", tmp_path / "none.yaml", environ=home)
    assert done.code == 2
    assert "none.yaml" in done.err
    assert "Traceback" not in done.err
