"""The parts of the sandbox that touch the machine, without Ray: ports, processes, files."""

import http.server
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.errors import SandboxError
from ray_multicluster_scheduler.local import HeadSpec, Sandbox, head
from ray_multicluster_scheduler.local.head import answers
from ray_multicluster_scheduler.local.sandbox import Member, Saved, StateDir
from ray_multicluster_scheduler.local.spec import LOOPBACK, Head, PortClaims, Ports


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDir]:
    made = StateDir(tmp_path)
    made.root.mkdir()
    made.make_scratch()
    yield made
    made.forget()


def a_saved(directory: StateDir, *specs: HeadSpec) -> Saved:
    members = [
        Member(
            spec=spec,
            head=Head(name=spec.name, ports=Ports.at(20_000 + 500 * n), temp_dir=directory.scratch / str(n)),
        )
        for n, spec in enumerate(specs)
    ]
    return Saved(members=tuple(members), config=directory.config)


def test_two_sandboxes_that_start_together_never_get_the_same_ports() -> None:
    with PortClaims() as mine, PortClaims() as theirs:
        assert mine.hold_new() != theirs.hold_new()


def test_a_port_that_was_taken_meanwhile_is_named() -> None:
    with PortClaims() as earlier:
        ports = earlier.hold_new()
    taken = pytest.raises(SandboxError, match=rf"port {ports.dashboard} .* is taken")
    with socket.create_server((LOOPBACK, ports.dashboard)), PortClaims() as claims, taken:
        claims.hold(ports)


def test_kill_ends_marked_processes_and_their_children_in_other_sessions_and_nothing_else(
    tmp_path: Path,
) -> None:
    mark = str(tmp_path / "0")
    script = "env -i sleep 1000 & setsid sleep 1000 & echo started; wait"
    bystander = subprocess.Popen(["sleep", "1000"], cwd=tmp_path, start_new_session=True)
    marked = subprocess.Popen(
        ["sh", "-c", script],
        env={**os.environ, head.MARK: mark},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with bystander, marked:
        assert marked.stdout is not None
        assert marked.stdout.readline() == b"started\n"
        assert head.kill(mark) == 3
        assert head.find(mark) == []
        assert marked.wait() == -signal.SIGKILL
        assert bystander.poll() is None
        bystander.kill()


def test_what_was_written_is_read_back_and_the_token_has_a_file_of_its_own(directory: StateDir) -> None:
    spec = HeadSpec(
        name="mac", token="sesame", tags=("gpu",), runtime_env={"pip": ["a"]}, resources={"rack": 1}
    )
    directory.token_file("mac").write_text("sesame")
    directory.token_file("mac").chmod(0o600)
    saved = a_saved(directory, spec, HeadSpec(name="centos"))
    directory.write(saved)
    assert directory.read() == saved
    assert [p.name for p in directory.root.iterdir() if "sesame" in p.read_text()] == ["mac.token"]
    assert {p.stat().st_mode & 0o077 for p in directory.root.iterdir()} == {0}


def test_a_damaged_state_says_what_clears_it_and_is_cleared(directory: StateDir, tmp_path: Path) -> None:
    (directory.root / "state.json").write_text("{")
    with pytest.raises(SandboxError, match=r"damaged.*raymc local down"):
        Sandbox.attach(tmp_path)
    Sandbox.clean(tmp_path)
    assert Sandbox.find(tmp_path) is None
    assert not directory.scratch.exists()


def test_a_state_whose_token_is_gone_is_not_taken_for_nothing_runs(directory: StateDir) -> None:
    directory.write(a_saved(directory, HeadSpec(name="mac", token="sesame")))
    with pytest.raises(SandboxError, match=r"damaged.*mac\.token"):
        directory.read()


def test_another_request_than_what_is_up_is_refused_and_names_the_difference(
    directory: StateDir, tmp_path: Path
) -> None:
    directory.write(a_saved(directory, HeadSpec(name="centos"), HeadSpec(name="mac", cpus=2)))
    with pytest.raises(SandboxError, match=r"clusters are up: mac, new would be.*raymc local down"):
        Sandbox(tmp_path, [HeadSpec(name="centos"), HeadSpec(name="mac", cpus=4), HeadSpec(name="new")]).up()


def test_a_directory_in_tmp_that_others_can_enter_is_not_used(directory: StateDir) -> None:
    directory.scratch.chmod(0o755)
    with pytest.raises(SandboxError, match="not a private directory"):
        directory.make_scratch()


def test_one_process_at_a_time_changes_a_sandbox(directory: StateDir) -> None:
    waits, entered = threading.Event(), threading.Event()

    def second() -> None:
        with directory.lock(waits.set):
            entered.set()

    with directory.lock():
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(timeout=PATIENCE_S)
        assert not entered.is_set()
    thread.join()
    assert entered.is_set()


class Ray29(http.server.BaseHTTPRequestHandler):
    """The dashboard of Ray 2.9: it fails where a caller does not say what it is."""

    def do_GET(self) -> None:
        named = "User-Agent" in self.headers
        self.send_response(200 if named else 500)
        self.end_headers()
        self.wfile.write(b'{"data": {"result": {"result": [{"state": "ALIVE"}]}}}' if named else b"{}")

    def log_message(self, *words: object) -> None:
        """Say nothing."""


def test_a_head_of_ray_2_9_is_ready_as_well(tmp_path: Path) -> None:
    with http.server.HTTPServer((LOOPBACK, 0), Ray29) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = replace(Ports.at(0), dashboard=server.server_port, client=server.server_port)
        try:
            assert answers(Head(name="old", ports=ports, temp_dir=tmp_path), None)
        finally:
            server.shutdown()


def test_a_head_that_cannot_start_leaves_nothing_and_shows_its_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nsleep 1000 &\necho no ray here; exit 3\n")
    broken.chmod(0o755)
    sandbox = Sandbox(tmp_path, [HeadSpec(name="a", python=str(broken))])
    with pytest.raises(SandboxError, match=r"'a' did not start.*exit code 3(.|\n)*no ray here"):
        sandbox.up()
    assert sandbox.heads == {}
    assert Sandbox.find(tmp_path) is None
    scratch = StateDir(tmp_path).scratch
    assert not scratch.exists()
    assert head.find(str(scratch)) == []


def test_a_cluster_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"no cluster 'b'.*it is down"):
        Sandbox(tmp_path, [HeadSpec(name="a")]).pids("b")
