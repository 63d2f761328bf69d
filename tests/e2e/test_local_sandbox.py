"""The sandbox with real Ray: heads that work, that die and come back, and that leave nothing behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until

from ray_multicluster_scheduler.config import load_config
from ray_multicluster_scheduler.errors import SandboxError
from ray_multicluster_scheduler.local import Head, HeadSpec, HeadState, Sandbox

pytestmark = pytest.mark.ray

#: Starts children in every place where a process can hide, tells their ids, and stays.
DRIVER = """
import os, subprocess, time, ray
ray.init(log_to_driver=False)

@ray.remote(num_cpus=1)
class Keeper:
    def start(self):
        same = subprocess.Popen(["sleep", "1000"])
        away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        return [os.getpid(), same.pid, away.pid]

keeper = Keeper.remote()
bare = subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True)
print("PIDS", *ray.get(keeper.start.remote()), os.getpid(), bare.pid, flush=True)
time.sleep(1000)
"""


def call(
    head: Head, path: str, *, token: str | None = None, body: dict[str, Any] | None = None
) -> tuple[int, Any]:
    """Ask Ray itself, with the bare means of the standard library; returns status and JSON."""
    request = urllib.request.Request(
        head.dashboard + path,
        data=json.dumps(body).encode() if body else None,
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None


def session_of(head: Head) -> str:
    return str(call(head, "/api/version")[1]["session_name"])


def left_of(head: Head) -> list[str]:
    """Return the living processes in a head's group or with its directory in their command line."""
    listing = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,pgid=,stat=,command="], capture_output=True, text=True, check=True
    )
    rows = [line.split(maxsplit=3) for line in listing.stdout.splitlines()]
    return [
        " ".join(row)
        for row in rows
        if not row[2].startswith("Z") and (int(row[1]) == head.pgid or str(head.temp_dir) in row[-1])
    ]


def is_alive(pid: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(state) and not state.startswith("Z")


def test_both_clusters_work_and_the_configuration_names_them(sandbox: Sandbox) -> None:
    specs = {spec.name: spec for spec in load_config(sandbox.config_path).clusters}
    for name, cpus in (("centos", 4.0), ("mac", 2.0)):
        head = sandbox.heads[name]
        status, nodes = call(head, "/api/v0/nodes")
        assert status == 200
        assert nodes["data"]["result"]["result"][0]["resources_total"]["CPU"] == cpus
        assert (specs[name].dashboard, specs[name].head_address) == (head.dashboard, head.client_address)
        assert {"gcs_server", "raylet", "dashboard", "agent"} <= sandbox.pids(name).keys()
    assert session_of(sandbox.heads["centos"]) != session_of(sandbox.heads["mac"])


@pytest.mark.skipif(sys.platform != "linux", reason="ss is a Linux tool")
def test_no_port_can_be_reached_from_another_machine(sandbox: Sandbox) -> None:
    listening = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout
    addresses = [line.split()[3].rpartition(":") for line in listening.splitlines()]
    for head in sandbox.heads.values():
        block = range(head.ports.base, head.ports.workers[-1] + 1)
        ours = [host for host, _, port in addresses if int(port) in block]
        assert len(ours) >= 10
        assert {host.strip("[]").removeprefix("::ffff:") for host in ours} == {"127.0.0.1"}


def test_up_again_changes_nothing(sandbox: Sandbox) -> None:
    sessions = {name: session_of(head) for name, head in sandbox.heads.items()}
    sandbox.up()
    assert {name: session_of(head) for name, head in sandbox.heads.items()} == sessions


def test_a_killed_head_is_gone_and_comes_back_on_its_ports_as_a_new_session(sandbox: Sandbox) -> None:
    before, session = sandbox.heads["mac"], session_of(sandbox.heads["mac"])
    other = session_of(sandbox.heads["centos"])
    sandbox.kill("mac")
    assert sandbox.state_of("mac") is HeadState.STOPPED
    assert left_of(before) == []
    taken = pytest.raises(SandboxError, match=rf"port {before.ports.gcs} .* is taken")
    with socket.create_server((before.ip, before.ports.gcs)), taken:
        sandbox.start("mac")
    sandbox.start("mac")
    assert sandbox.heads["mac"].dashboard == before.dashboard
    assert session_of(sandbox.heads["mac"]) != session
    assert session_of(sandbox.heads["centos"]) == other


def test_a_head_that_lost_its_raylet_is_started_again_by_up(sandbox: Sandbox) -> None:
    session = session_of(sandbox.heads["mac"])
    (raylet,) = sandbox.pids("mac")["raylet"]
    os.kill(raylet, signal.SIGKILL)
    until(lambda: not is_alive(raylet))
    sandbox.up()
    assert session_of(sandbox.heads["mac"]) != session
    assert sandbox.state_of("mac") is HeadState.RUNNING


def test_a_failed_start_stops_the_heads_that_did_start(tmp_path: Path) -> None:
    seen: dict[str, Head] = {}
    heads = [HeadSpec(name="good", cpus=1), HeadSpec(name="bad", cpus=1, python="/bin/false")]
    sandbox = Sandbox(tmp_path, heads)
    with pytest.raises(SandboxError, match="'bad' did not start"):
        sandbox.up(lambda name, phase: seen.update(sandbox.heads))
    assert seen["good"].pgid is not None
    assert left_of(seen["good"]) == []
    assert not seen["good"].temp_dir.exists()
    assert Sandbox.find(tmp_path) is None


def test_what_a_killed_starter_leaves_is_adopted_guarded_and_removed_with_its_jobs(tmp_path: Path) -> None:
    home, user_home, driver = tmp_path / "home", tmp_path / "user", tmp_path / "driver.py"
    user_home.mkdir()
    driver.write_text(DRIVER)
    starter = (
        "import pathlib, sys; from ray_multicluster_scheduler.local import HeadSpec, Sandbox\n"
        "Sandbox(pathlib.Path(sys.argv[1]), [HeadSpec(name='a', cpus=2, token='sesame')]).up()"
    )
    environ = {**os.environ, "HOME": str(user_home), "RAY_ADDRESS": "127.0.0.9:1"}
    with subprocess.Popen([sys.executable, "-c", starter, str(home)], env=environ) as process:
        until(lambda: (there := Sandbox.find(home)) and there.heads["a"].pgid)
        process.kill()
    sandbox = Sandbox.attach(home)
    sandbox.up()
    head = sandbox.heads["a"]
    assert call(head, "/api/v0/nodes")[0] == 401
    assert call(head, "/api/v0/nodes", token="wrong")[0] in {401, 403}
    job = {"entrypoint": f"python {driver}", "submission_id": "j1"}
    assert call(head, "/api/jobs/", token="sesame", body=job)[0] == 200

    def told() -> list[int]:
        log = call(head, "/api/jobs/j1/logs", token="sesame")[1]["logs"]
        return [
            int(word) for line in log.splitlines() if line.startswith("PIDS") for word in line.split()[1:]
        ]

    pids = until(told)
    assert all(map(is_alive, pids))
    sandbox.down()
    assert left_of(head) == []
    assert [pid for pid in pids if is_alive(pid)] == []
    assert not head.temp_dir.parent.exists()
    assert {path.name for path in (home / "local").iterdir()} == {"lock", "clusters.yaml"}
    assert list(user_home.iterdir()) == []
