"""The ports of a head whose processes are on this machine."""

from pathlib import Path

import pytest

from ray_multicluster_scheduler.cluster_health.tcp_port import head_ports_here, ports_of_head

SESSION = "session_2026-01-02_03-04-05_678901_4711"
GCS = "/py/ray/core/src/ray/gcs/gcs_server --gcs_server_port=6379 --session-name=" + SESSION
DASHBOARD = (
    "/py/bin/python /py/ray/dashboard/dashboard.py --host=127.0.0.1 --port=8265 --port-retries=0 "
    f"--temp-dir=/tmp/ray --session-dir=/tmp/ray/{SESSION} --gcs-address=10.0.0.5:6379 "
)
CLIENT = "/py/bin/python -m ray.util.client.server --address=10.0.0.5:6379 --port=10001 --mode=proxy"


def test_a_heads_dashboard_and_client_server_are_found_by_their_session() -> None:
    assert ports_of_head(["/sbin/init", GCS, DASHBOARD, CLIENT], SESSION) == {8265, 10001}


@pytest.mark.parametrize(
    "commands",
    [
        [],
        ["ssh -N -L 8265:localhost:8265 -L 10001:localhost:10001 head"],
        ["kubectl port-forward service/head 8265 10001"],
        [DASHBOARD.replace("4711", "4712"), CLIENT],
        [CLIENT],
    ],
    ids=["nothing", "ssh", "kubectl", "another-head", "its-dashboard-elsewhere"],
)
def test_neither_a_tunnel_nor_another_head_is_the_head(commands: list[str]) -> None:
    assert not ports_of_head(commands, SESSION)


def test_the_client_server_of_another_head_is_not_taken_for_this_ones() -> None:
    assert ports_of_head([DASHBOARD, CLIENT.replace(":6379", ":6380")], SESSION) == {8265}


def test_without_a_way_to_list_processes_no_head_is_taken_for_one_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not head_ports_here(SESSION)


def test_processes_are_listed_with_ps_where_there_is_no_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps = tmp_path / "ps"
    ps.write_text(f"#!/bin/sh\necho '/sbin/launchd'\necho '{DASHBOARD}'\necho '{CLIENT}'\n")
    ps.chmod(0o755)
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert head_ports_here(SESSION) == {8265, 10001}
