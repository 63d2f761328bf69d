"""`raymc submit --array`: many jobs, one group, one wait, one stop."""

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.support.job_commands import Commands, commands, lasts_until, raymc, two
from tests.support.system import fake

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import ShellRunner

__all__ = ["raymc", "two"]


def test_an_array_is_one_group_and_one_wait(raymc: Commands) -> None:
    done = raymc.run(
        "submit", "--array", "0-2,7", "--submission-id", "arr", "--name", "part-{i}", "--", "echo part {i}"
    )
    assert (done.code, done.out) == (0, "")
    assert "Group arr (4 jobs) accepted" in done.err
    assert "4/4 jobs: 4 SUCCEEDED" in done.err
    assert len(re.findall(r"^\d/4 jobs: ", done.err, re.MULTILINE)) <= 3  # not one for every change
    listed = raymc.json("jobs", "--group", "arr")
    assert [(row["submission_id"], row["entrypoint"], row["job_id"]) for row in listed] == [
        (f"arr-{i}", f"echo part {i}", f"part-{i}") for i in (7, 2, 1, 0)
    ]


def test_the_larger_cluster_does_more_of_an_array(two: Commands) -> None:
    two.configure(max_starts_in_flight=6)
    done = two.run("submit", "--array", "1-30", "--submission-id", "arr", "--", "echo {i}; sleep 0.3")
    assert done.code == 0, done.err
    places = Counter(row["cluster"] for row in two.json("jobs", "--group", "arr", "--limit", "0"))
    assert places["centos"] + places["mac"] == 30
    assert places["centos"] > places["mac"] > 0
    assert f"{places['mac']} SUCCEEDED on mac" in done.err


def test_failures_of_an_array_are_counted_and_the_first_ones_shown(raymc: Commands) -> None:
    done = raymc.run("submit", "--array", "1-5", "--submission-id", "arr", "--", "echo saw {i}; exit 1")
    assert done.code == 1
    assert "5 FAILED" in done.err
    assert done.err.count("exit code 1") == 3
    assert "| saw 1" in done.err
    assert "Not succeeded either: arr-4, arr-5." in done.err
    assert "`raymc retry arr`" in done.err
    assert len(raymc.json("jobs", "--group", "arr", "--state", "failed")) == 5


def test_a_group_is_waited_for_and_stopped_as_one(raymc: Commands) -> None:
    group = raymc.no_wait("--array", "0-8", "--", "echo {i}; sleep 30")
    assert "this would stop 9 jobs" in raymc.refused("stop", "--group", group)
    stopped = raymc.run("stop", "--group", group, "--yes")
    assert stopped.code == 0
    assert sorted(stopped.out.split()) == sorted(
        word for i in range(9) for word in (f"{group}-{i}:", "STOPPED")
    )
    waited = raymc.run("wait", "--group", group)
    assert waited.code == 1
    assert "9 STOPPED" in waited.err


def test_what_still_waits_of_an_array_is_sent_as_room_comes_and_a_wait_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commands(tmp_path, monkeypatch, fake("a", 4, runner=ShellRunner())) as raymc:
        command = f"echo {{i}}; {lasts_until(tmp_path / 'go')}"
        done = raymc.run("submit", "--no-wait", "--array", "0-8", "--cpus", "2", "--", command)
        group = done.out.strip()
        assert done.code == 0
        assert "9 jobs are accepted; process" in done.err
        for index in range(2):
            raymc.until(f"{group}-{index}", JobState.RUNNING)
        waiting = raymc.json("jobs", "--group", group, "--state", "queued")
        assert {row["waits_for"] for row in waiting} == {"a: needs 2 CPU; free: 0 CPU of 4 CPU"}
        assert len(waiting) == 7
        impatient = raymc.run("wait", "--group", group, "--timeout", "0.1")
        assert impatient.code == 1
        assert "0/9 jobs: 7 QUEUED, 2 RUNNING" in impatient.err
        (tmp_path / "go").touch()
        waited = raymc.run("wait", "--group", group)
        assert waited.code == 0, waited.err
        assert "9/9 jobs: 9 SUCCEEDED" in waited.err
