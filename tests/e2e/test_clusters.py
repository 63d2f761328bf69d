"""`raymc clusters` and `raymc doctor` on real heads: right values or "unknown", and nothing left behind."""

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import a_cluster
from tests.support.raymc import Done, environment, raymc, write_config
from tests.support.waiting import eventually

from ray_multicluster_scheduler.local import Head, HeadSpec, Sandbox
from ray_multicluster_scheduler.model.cluster import ClusterSpec

pytestmark = pytest.mark.ray

TOKEN = "a-token-for-this-test-only"
HEADS = [
    HeadSpec(name="plain", cpus=2, gpus=1, memory=2 * 1024**3),
    HeadSpec(name="scaler", cpus=3, env={"RAY_enable_autoscaler_v2": "1"}),
    HeadSpec(name="locked", cpus=1, token=TOKEN),
]


@dataclass(frozen=True, kw_only=True)
class World:
    """Three real clusters, one whose port takes connections and never answers, one that nobody runs."""

    config: Path
    environ: dict[str, str]
    heads: tuple[Head, ...]

    async def raymc(self, command: str, *options: str) -> Done:
        return await raymc(command, *options, "--config", self.config, environ=self.environ)

    def client_sessions(self) -> list[str]:
        """Return the traces of Ray Client sessions, which no command of ours may open: processes and logs."""
        running = [
            line
            for line in command_lines()
            if "specific-server" in line
            and any(f"--address={head.gcs_address}" in line for head in self.heads)
        ]
        logs = [
            str(log) for head in self.heads for log in head.temp_dir.glob("session_*/logs/*client_server_*")
        ]
        return running + logs


def command_lines() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may end while we look
            yield file.read_bytes().replace(b"\0", b" ").decode(errors="replace")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("clusters")
    with Sandbox(folder, HEADS) as sandbox, socket.create_server(("127.0.0.1", 0)) as silent:
        silent_at = f"127.0.0.1:{silent.getsockname()[1]}"
        specs: list[ClusterSpec] = [
            a_cluster(
                spec.name,
                head_address=sandbox.heads[spec.name].client_address,
                dashboard=sandbox.heads[spec.name].dashboard,
                auth_token_env=spec.token_variable,
            )
            for spec in HEADS
        ]
        specs.append(a_cluster("silent", head_address=silent_at, dashboard=f"http://{silent_at}"))
        specs.append(a_cluster("refused", head_address="127.0.0.1:9", dashboard="http://127.0.0.1:9"))
        variable = HEADS[2].token_variable
        assert variable is not None
        yield World(
            config=write_config(folder, specs, probe_timeout_s=10),
            environ=environment(**{variable: TOKEN}),
            heads=tuple(sandbox.heads.values()),
        )


async def clusters_once_usage_is_told(world: World) -> dict[str, dict[str, Any]]:
    """Return what `raymc clusters` shows; a head's usage is unknown for some seconds after its start."""
    seen: dict[str, dict[str, Any]] = {}

    async def is_told() -> bool:
        done = await world.raymc("clusters", "--json")
        assert (done.code, done.err) == (0, "")
        seen.update({cluster["name"]: cluster for cluster in json.loads(done.out)})
        return all(seen[spec.name]["used"] is not None for spec in HEADS)

    await eventually(is_told, told=lambda: f"not every head told its usage; the last was {seen}")
    return seen


async def test_every_value_is_right_or_unknown_and_no_helper_process_appears(world: World) -> None:
    seen = await clusters_once_usage_is_told(world)

    for spec in HEADS:
        cluster = seen[spec.name]
        assert (cluster["health"], cluster["problem"]) == ("HEALTHY", None)
        assert cluster["total"]["CPU"] == spec.cpus
        assert cluster["used"].get("CPU", 0.0) == 0.0
        assert cluster["running_jobs"] == 0
        assert [node["alive"] for node in cluster["nodes"]] == [True]
        assert cluster["ray_version"]
        assert cluster["python_version"]
        assert cluster["session_name"].startswith("session_")
    assert (seen["plain"]["total"]["GPU"], seen["plain"]["total"]["memory"]) == (1.0, 2.0 * 1024**3)
    for name in ("silent", "refused"):
        assert seen[name]["health"] == "UNHEALTHY"
        assert seen[name]["total"] is seen[name]["used"] is seen[name]["running_jobs"] is None
    assert "10 s" in seen["silent"]["problem"]
    assert "refused" in seen["refused"]["problem"]
    assert world.client_sessions() == []


async def test_the_doctor_is_content_with_the_real_clusters_and_opens_no_session(world: World) -> None:
    done = await world.raymc("doctor", "--json")
    assert (done.code, done.err) == (1, "")  # two of the five clusters are sick
    checks = {
        cluster["name"]: {check["name"]: check for check in cluster["checks"]}
        for cluster in json.loads(done.out)["clusters"]
    }
    for spec in HEADS:
        problems = [check for check in checks[spec.name].values() if check["verdict"] == "problem"]
        assert problems == []
        assert checks[spec.name]["Ray Client"]["verdict"] == "ok"
        assert checks[spec.name]["failover"]["verdict"] == "ok"
        assert checks[spec.name]["tasks and actors"]["verdict"] == "ok"
    assert checks["locked"]["token"]["verdict"] == "ok"
    for name in ("silent", "refused"):
        assert checks[name]["dashboard"]["verdict"] == "problem"
    assert TOKEN not in done.out
    assert world.client_sessions() == []
