"""`raymc retry` runs again what failed, `cancel` is `stop`, and `--version` tells the version."""

from pathlib import Path

import pytest
from tests.support.job_commands import Commands, commands
from tests.support.job_commands import raymc_both_ways as raymc
from tests.support.system import fake
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler import __version__
from ray_multicluster_scheduler.config.find import this_user
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.testing import ShellRunner

__all__ = ["raymc"]


def test_what_failed_of_a_group_is_run_again_and_the_rest_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commands(tmp_path, monkeypatch, fake("a", 4, runner=ShellRunner())) as raymc:
        flag = tmp_path / "flag"
        command = f"[ {{i}} = 0 ] || cat {flag}"
        assert raymc.run("submit", "--array", "0-2", "--submission-id", "grp", "--", command).code == 1
        flag.write_text("it works now\n")
        done = raymc.run("retry", "grp")
        assert done.code == 0, done.err
        assert {row["submission_id"] for row in raymc.json("jobs", "--group", "grp.2")} == {
            "grp-1.2",
            "grp-2.2",
        }
        assert "it works now" in raymc.run("logs", "grp.2").out
        info = raymc.run("info", "grp-1.2").out
        assert "repeats   grp-1\n" in info.replace("repeats      ", "repeats   ")
        assert "none of these 2 jobs has failed" in raymc.refused("retry", "grp.2")


def test_one_job_is_repeated_with_its_log_and_without_waiting(raymc: Commands) -> None:
    raymc.run("submit", "--submission-id", "one", "--name", "train", "--", "echo hello; exit 3")
    again = raymc.run("retry", "train")
    assert again.code == 1
    assert again.out.splitlines()[-1] == "hello"
    assert raymc.run("retry", "--no-wait", "one").out == "one.3\n"
    assert raymc.job("one.3").spec.own_name == "train"


def test_a_preferred_cluster_that_is_gone_is_told_in_a_line(raymc: Commands) -> None:
    with raymc.scheduler(start=True) as opened:
        request = JobRequest(
            submission_id="one", entrypoint="exit 3", user=this_user(), preferred_cluster="sentos"
        )
        opened.service.submit([request])
        for _ in opened.service.changes(["one"], timeout_s=PATIENCE_S, tick_s=1):
            pass
    again = raymc.run("retry", "--no-wait", "one")
    assert again.out == "one.2\n"
    assert "preferred_cluster 'sentos' is not configured; did you mean 'centos'?" in again.err


def test_cancel_is_stop(raymc: Commands) -> None:
    raymc.no_wait("--submission-id", "one", "--", "sleep 600")
    assert raymc.run("cancel", "one").out == "one: STOPPED\n"


def test_the_version_is_told(raymc: Commands) -> None:
    assert raymc.run("--version").out == f"raymc {__version__}\n"
