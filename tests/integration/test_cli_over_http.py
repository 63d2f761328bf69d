"""`raymc` without a clusters.yaml, where an address names a server: the same commands, the same screens."""

import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_cli_jobs_completion import offered
from tests.support.job_commands import Commands, commands, lasts_until, raymc
from tests.support.raymc import screen
from tests.support.serving import live
from tests.support.system import fake
from tests.support.waiting import until

from ray_multicluster_scheduler.cli.options import completion
from ray_multicluster_scheduler.client.server_address import server_in
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.environment.options import ADDRESS_VAR
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.testing import ShellRunner

__all__ = ["raymc"]

TELL_IMPORTS = """
import sys
from ray_multicluster_scheduler.cli.main import main
sys.argv = ["raymc", *sys.argv[1:]]
try:
    main()
finally:
    ours = {name.split(".")[1] for name in sys.modules if name.startswith("ray_multicluster_scheduler.")}
    print(sorted(ours & {"store", "engine", "ray_api", "runtime"}), "ray" in sys.modules)
"""


@contextmanager
def served(raymc: Commands, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the configuration of these commands, and leave them nothing but the address."""
    scheduler = EmbeddedScheduler.open(raymc.config)
    scheduler.start()
    try:
        with live(create_app(scheduler)) as address:
            monkeypatch.setenv("RAY_MULTICLUSTER_ADDRESS", address)
            monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(raymc.folder / "client"))
            monkeypatch.chdir(raymc.folder.parent)
            yield address
    finally:
        scheduler.stop()


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    folder = tmp_path / "server"
    folder.mkdir()
    with (
        commands(folder, monkeypatch, fake("centos", 4), fake("mac", 2)) as ready,
        served(ready, monkeypatch),
    ):
        yield ready


def test_a_job_is_followed_with_its_log_to_its_end(remote: Commands) -> None:
    done = remote.run("submit", "--submission-id", "one", "--", "echo hello; exit 3")
    assert done.code == 1
    assert done.out.endswith("\nhello\n")
    assert "one FAILED on " in done.err
    assert remote.run("logs", "one").out == done.out
    assert remote.run("logs", "one", "--tail", "1").out == "hello\n"
    assert remote.run("logs", "one", "--tail", "0").out == ""
    assert remote.run("logs", "-f", "one").code == 1


def test_an_array_is_waited_for_and_run_again(remote: Commands) -> None:
    done = remote.run("submit", "--array", "0-2", "--submission-id", "grp", "--", "exit {i}")
    assert done.code == 1
    assert "job grp-2 FAILED on" in done.err
    again = remote.run("retry", "grp", "--no-wait")
    assert again.code == 0
    assert again.out.strip() == "grp.2"
    assert remote.run("wait", "grp.2").code == 1


def test_what_is_known_of_a_job_reads_as_in_process(remote: Commands) -> None:
    assert remote.no_wait("--submission-id", "one", "--name", "train", "--", "echo hello") == "one"
    assert remote.run("wait", "train").code == 0
    assert [row["submission_id"] for row in remote.json("jobs", "--text", "HELLO")] == ["one"]
    assert remote.json("status", "one")["state"] == "SUCCEEDED"
    assert remote.json("info", "train")["attempts"][0]["outcome"] == "SUCCEEDED"
    assert [move["new"] for move in remote.json("events", "one")][-1] == "SUCCEEDED"
    assert remote.json("explain", "one")["decision"]["cluster"] in {"centos", "mac"}
    assert remote.json("submit", "--dry-run", "--", "echo")["cluster"] in {"centos", "mac"}
    assert "did you mean 'one'" in remote.refused("status", "onee")
    assert "did you mean 'mac'" in remote.refused("submit", "--cluster", "macc", "--", "echo")


def test_a_running_job_is_followed_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = fake("a", runner=ShellRunner())
    with commands(tmp_path, monkeypatch, ray) as raymc, served(raymc, monkeypatch):
        raymc.no_wait(
            "--submission-id", "one", "--", f"echo early; {lasts_until(tmp_path / 'go')}; echo late"
        )
        (tmp_path / "go").touch()
        followed = raymc.run("logs", "-f", "one")
        assert followed.code == 0
        assert followed.out.splitlines()[-2:] == ["early", "late"]
        raymc.no_wait("--submission-id", "long", "--", lasts_until(tmp_path / "never"))
        assert raymc.run("stop", "--all-mine", "--yes").out == "long: STOPPED\n"


def test_clusters_are_shown_as_the_server_sees_them(
    remote: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.no_wait("--submission-id", "long", "--cpus", "3", "--", "sleep 600")
    assert "gets no new jobs" in remote.run("drain", "mac", "--reason", "tea").out

    def once_it_is_sent() -> dict[str, Any]:  # the server does it in its own time
        rows = {row["name"]: row for row in remote.json("clusters")}
        return rows if any(row["live_jobs"] for row in rows.values()) else {}

    rows = until(once_it_is_sent)
    assert (rows["mac"]["drained"], rows["mac"]["drain_reason"]) == (True, "tea")
    assert sum(row["live_jobs"] for row in rows.values()) == 1
    for name, value in screen(140).items():
        monkeypatch.setenv(name, value)
    assert "1/50 ours" in remote.run("clusters").out
    assert "may have new jobs again" in remote.run("undrain", "mac").out
    assert remote.run("stop", "long").code == 0


def test_ps_shows_what_the_server_sees(remote: Commands) -> None:
    remote.no_wait("--submission-id", "long", "--", "sleep 600")
    (item,) = until(lambda: remote.json("ps")["items"])  # the server looks at clusters now and then
    assert (item["kind"], item["what"], item["why"]) == ("job", "sleep 600", "submitted as long")
    assert "submitted as long" in remote.run("ps").out.replace("\n", " ")
    assert remote.run("stop", "long").code == 0


def test_the_server_runs_the_short_jobs_of_the_doctor(remote: Commands) -> None:
    reports = json.loads(remote.run("doctor", "--run", "--json").out)["clusters"]
    assert [report["name"] for report in reports] == ["centos", "mac"]
    for report in reports:
        (check,) = [each for each in report["checks"] if each["name"] == "run"]
        assert check["says"].endswith("python: not found")  # on these clusters
        (run,) = remote.fakes[report["name"]].runs
        assert run.submission_id.startswith("raymc-probe-")


def test_history_tokens_and_the_audit_trail_are_the_servers(
    remote: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remote.run("submit", "--", "echo").code == 0
    assert remote.json("prune", "--dry-run", "--keep", "0")["jobs"] == 1
    assert remote.json("prune", "--keep", "0")["jobs"] == 1
    assert remote.json("jobs") == []
    assert "submit" in {entry["action"] for entry in remote.json("audit")}
    made = remote.run("token", "create", "--user", "bob", "--role", "admin")
    assert made.code == 0, made.err
    monkeypatch.setenv("RAY_MULTICLUSTER_TOKEN", made.out.strip())
    (token,) = json.loads(remote.run("token", "list", "--json").out)
    assert (token["user"], token["role"]) == ("bob", "admin")


def test_all_of_mine_are_those_of_the_tokens_user(remote: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    remote.no_wait("--submission-id", "anns", "--", "sleep 600")
    made = remote.run("token", "create", "--user", "bob", "--role", "operate")
    monkeypatch.setenv("RAY_MULTICLUSTER_TOKEN", made.out.strip())
    monkeypatch.delenv("RAY_MULTICLUSTER_USER")
    remote.no_wait("--submission-id", "bobs", "--", "sleep 600")
    assert remote.json("status", "bobs")["user"] == "bob"
    assert remote.run("stop", "--all-mine", "--yes").out == "bobs: STOPPED\n"
    message = remote.json("info", "bobs")["message"]  # it may say too that the cluster had not got it yet
    assert message.partition(";")[0] == "stopped by bob"
    assert remote.run("stop", "anns").code == 0


def test_a_reader_is_told_that_no_job_is_theirs_and_who_reads_all_sees_them(
    remote: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.no_wait("--submission-id", "hers", "--", "true")
    tokens = {}
    for role in ("admin", "read", "read-all"):
        tokens[role] = remote.run("token", "create", "--user", "eve", "--role", role).out.strip()
        monkeypatch.setenv("RAY_MULTICLUSTER_TOKEN", tokens["admin"])
    monkeypatch.setenv("RAY_MULTICLUSTER_TOKEN", tokens["read"])
    told = "No job is yours (eve); the role 'read' does not see those of others.\n"
    assert remote.run("jobs").out == told
    monkeypatch.setenv("RAY_MULTICLUSTER_TOKEN", tokens["read-all"])
    assert "hers" in remote.run("jobs").out
    assert "this needs the role 'operate'" in remote.run("drain", "mac").err


def test_completion_asks_the_server(remote: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "ASK_S", 60.0)
    remote.run("submit", "--array", "0-1", "--submission-id", "night", "--", "echo {i}")
    assert offered(remote, monkeypatch, "raymc status ni") == ["night-1", "night-0"]
    assert offered(remote, monkeypatch, "raymc wait --group ") == ["night"]
    assert offered(remote, monkeypatch, "raymc drain ") == ["centos", "mac"]


def test_completion_offers_nothing_where_no_server_answers(
    raymc: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_MULTICLUSTER_ADDRESS", "http://127.0.0.1:9")
    assert offered(raymc, monkeypatch, "raymc status ") == []


def test_the_commands_of_a_client_import_neither_the_store_nor_the_engine(remote: Commands) -> None:
    """In a process of its own: what another test has imported does not count."""
    for command in (["jobs"], ["submit", "--", "echo"], ["clusters"], ["ps"]):
        done = subprocess.run(
            [sys.executable, "-c", TELL_IMPORTS, *command], capture_output=True, text=True, check=False
        )
        assert done.stdout.splitlines()[-1] == "[] False", done


@pytest.fixture
def shut(remote: Commands, monkeypatch: pytest.MonkeyPatch) -> tuple[Commands, str, str]:
    """Commands that were told no server, the address of one that wants tokens, and a token."""
    address = os.environ["RAY_MULTICLUSTER_ADDRESS"]
    secret = remote.run("token", "create", "--user", "ann", "--role", "admin").out.strip()
    monkeypatch.delenv("RAY_MULTICLUSTER_ADDRESS")
    return remote, address, secret


def test_a_login_names_the_server_and_its_token_until_logout(
    shut: tuple[Commands, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raymc, address, secret = shut
    assert "no clusters.yaml found" in raymc.refused("jobs")
    monkeypatch.setattr("sys.stdin", io.StringIO("raymc_wrong\n"))
    assert "raymc_wrong" not in raymc.refused("login", address)
    kept = raymc.folder / "client" / "login.json"
    assert not kept.exists()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{secret}\n"))
    done = raymc.run("login", f"{address}/")
    assert (done.code, done.out) == (0, "")
    assert f"Logged in to {address}, with 2 clusters" in done.err
    assert secret not in done.err
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert raymc.run("submit", "--", "echo hi").code == 0
    assert len(raymc.json("jobs")) == 1

    # A configuration that is named goes before, one that is found does not.
    monkeypatch.chdir(raymc.folder)
    assert len(raymc.json("jobs")) == 1
    assert raymc.run("config", "reload").code == 0
    assert raymc.json("jobs", "--config", str(raymc.config)) == []

    kept.chmod(0o644)
    assert "others can read the login" in raymc.refused("jobs")
    assert "is gone" in raymc.run("logout").err
    assert not kept.exists()
    assert "Nobody is logged in here" in raymc.run("logout").err


def test_the_token_of_a_login_is_for_its_own_server_only(
    shut: tuple[Commands, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raymc, address, secret = shut
    monkeypatch.setattr("sys.stdin", io.StringIO(secret))
    assert raymc.run("login", address).code == 0
    here, elsewhere = (server_in({**os.environ, ADDRESS_VAR: url}) for url in (address, "http://127.0.0.1:1"))
    assert here is not None
    assert here.token == secret
    assert elsewhere is not None
    assert elsewhere.token is None


def test_an_address_is_an_option_of_raymc_that_goes_before_everything(
    shut: tuple[Commands, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raymc, address, secret = shut
    monkeypatch.setenv("RAY_MULTICLUSTER_TOKEN", secret)
    monkeypatch.setenv("RAY_MULTICLUSTER_ADDRESS", "http://127.0.0.1:1")
    assert raymc.run("--address", address, "clusters").code == 0
    assert os.environ["RAY_MULTICLUSTER_ADDRESS"] == "http://127.0.0.1:1"
    assert "expected a URL such as http://127.0.0.1:8700" in raymc.refused("--address", "nowhere", "jobs")
    assert "expected a URL" in raymc.refused("login", "nowhere")
