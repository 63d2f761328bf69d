"""`raymc jobs`, `status`, `info`, `logs`, `events`, `explain`: they tell the truth."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.builders import a_spec
from tests.support.job_commands import Commands, commands, lasts_until, raymc, two
from tests.support.raymc import screen
from tests.support.system import fake
from tests.support.waiting import until

from ray_multicluster_scheduler.cli import session
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.views import JobDetail, JobView
from ray_multicluster_scheduler.testing import ShellRunner

__all__ = ["raymc", "two"]

READERS = (["jobs"], ["status", "one"], ["info", "one"], ["events", "one"], ["explain", "one"])


@pytest.fixture
def unled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """One fake cluster, `centos` with 4 CPUs, and nobody who schedules."""
    with commands(tmp_path, monkeypatch, fake("centos", 4), leads=False) as ready:
        yield ready


def accept(raymc: Commands, **jobs: JobSpec) -> None:
    """Write jobs to the store."""
    with raymc.scheduler() as opened:
        opened.store.jobs.add(list(jobs.items()), now=SystemClock().now())


def leases_so_far(raymc: Commands) -> int:
    """Take the lease for a moment, which counts as one."""
    with raymc.scheduler() as opened:
        lease = opened.store.leases.acquire("test", ttl_s=1, now=SystemClock().now())
        assert lease is not None
        opened.store.leases.release(lease)
        return lease.epoch


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_reading_about_a_waiting_job_takes_no_lease_and_sends_nothing(
    unled: Commands, command: list[str]
) -> None:
    accept(unled, one=a_spec(entrypoint="echo"))
    assert unled.run(*command).code == 0
    assert unled.run(command[0], "--json", *command[1:]).code == 0
    assert leases_so_far(unled) == 1
    assert not unled.fakes["centos"].jobs


def test_filters_choose_and_the_newest_come_first(unled: Commands) -> None:
    accept(
        unled,
        one=a_spec(entrypoint="echo 1", tags=("x",)),
        two=a_spec(entrypoint="echo 2", user="bob", group="g"),
        three=a_spec(entrypoint="echo 3"),
    )
    with unled.scheduler() as opened:
        opened.service.stop(["three"])
    unled.lead()
    assert unled.run("wait", "one", "two").code == 0
    unled.until("three", JobState.STOPPED)

    def ids(*filters: str) -> list[str]:
        return [row["submission_id"] for row in unled.json("jobs", *filters)]

    assert ids() == ["three", "two", "one"]
    assert ids("--limit", "1") == ["three"]
    assert ids("--user", "bob") == ["two"]
    assert ids("--group", "g") == ["two"]
    assert ids("--tag", "x") == ["one"]
    assert ids("--text", "ECHO") == ["three", "two", "one"]
    assert ids("--text", "hre") == ids("--text", "echo 3") == ["three"]
    assert ids("--text", "nothing") == []
    assert ids("--state", "stopped") == ["three"]
    assert ids("--state", "SUCCEEDED", "--state", "stopped", "--user", "ann") == ["three", "one"]
    assert ids("--state", "succeeded, Stopped", "--user", "ann") == ["three", "one"]
    cluster = unled.job("one").cluster
    assert cluster is not None
    assert ids("--cluster", cluster)[-1] == "one"
    assert "three" not in ids("--cluster", cluster)
    assert "No job matches." in unled.run("jobs", "--user", "eve").out
    assert "The newest 2; --limit shows more." in unled.run("jobs", "--limit", "2").out


def test_an_empty_store_says_so(raymc: Commands) -> None:
    assert raymc.run("jobs").out == "No job was submitted yet.\n"
    assert raymc.json("jobs") == []


def _list_with_a_job_that_waits_and_one_that_failed(raymc: Commands) -> str:
    raymc.use("centos", 2.0)
    assert raymc.run("submit", "--submission-id", "bad", "--", "exit 3").code == 1
    raymc.no_wait("--submission-id", "large", "--cpus", "3", "--", "echo")
    return raymc.run("jobs").out


def test_rows_say_why_a_job_waits_and_why_one_failed(raymc: Commands) -> None:
    large, bad = _list_with_a_job_that_waits_and_one_that_failed(raymc).splitlines()[1:3]
    assert large.endswith("echo     centos: needs 3 CPU; free: 2 CPU of 4 CPU")
    assert bad.endswith("exit 3   its program ended with exit code 3")
    (waiting,) = raymc.json("jobs", "--state", "queued")
    assert (waiting["wait_reason"], waiting["waits_for"]) == (
        "NO_ROOM",
        "centos: needs 3 CPU; free: 2 CPU of 4 CPU",
    )
    assert f": {waiting['waits_for']}" in raymc.run("status", "large").out
    assert raymc.json("info", "large")["waits_for"] == waiting["waits_for"]


def test_on_a_narrow_screen_rows_say_why_in_a_word(raymc: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in screen(80).items():
        monkeypatch.setenv(name, value)
    shown = _list_with_a_job_that_waits_and_one_that_failed(raymc)
    assert "QUEUED           (no room)" in shown
    assert "FAILED (exit 3)  centos" in shown
    assert max(map(len, shown.splitlines())) <= 80
    raymc.run("submit", "--after", "bad", "--", "echo")
    assert "FAILED           (never sent)" in raymc.run("jobs").out


def test_a_job_that_waits_for_others_says_for_which_and_whether_in_vain(raymc: Commands) -> None:
    raymc.run("submit", "--submission-id", "train", "--", "exit 3")
    raymc.stop_leading()
    accept(raymc, eval=a_spec(depends_on=("train",)), late=a_spec(depends_on=("eval",)))
    rows = {row["submission_id"]: row for row in raymc.json("jobs")}
    assert rows["eval"]["waits_for"].startswith(
        "it will fail: train, which it needs, has failed (its program"
    )
    assert rows["late"]["waits_for"] == "it needs eval (QUEUED)"
    assert {rows[name]["wait_reason"] for name in ("eval", "late")} == {"DEPENDENCIES"}
    told = raymc.run("explain", "eval").out
    assert "It will fail: train, which it needs, has failed (its program ended with exit code 3)." in told


@pytest.mark.parametrize("columns", [80, 140])
def test_the_list_fits_the_screen_and_a_short_id_names_its_job(
    unled: Commands, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    long_id, command = "sub_" + "0123456789abcdef" * 2, "python /home/z/train.py " + "--flag " * 40
    accept(unled, **{long_id: a_spec(entrypoint=command), "short": a_spec(entrypoint=command, user="bob")})
    for name, value in screen(columns).items():
        monkeypatch.setenv(name, value)
    shown = unled.run("jobs").out
    assert max(map(len, shown.splitlines())) <= columns
    (line,) = (line for line in shown.splitlines() if line.strip().startswith("sub_"))
    assert "python /home/z/t" in line  # one line for one job
    told = unled.run("status", line.split()[0])
    assert (told.code, told.out.split()[0]) == (0, "QUEUED")
    assert long_id not in line  # its beginning names the job, too


def test_what_ended_while_nobody_scheduled_is_told_as_soon_as_somebody_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commands(tmp_path, monkeypatch, fake("centos", 4, runner=ShellRunner())) as raymc:
        raymc.no_wait("--submission-id", "one", "--", f"sh -c '{lasts_until(tmp_path / 'go')}'")
        raymc.until("one", JobState.RUNNING)
        raymc.stop_leading()
        before = leases_so_far(raymc)
        (tmp_path / "go").touch()
        until(lambda: all(run.end is not None for run in raymc.fakes["centos"].runs))
        assert not any("SUCCEEDED" in raymc.run(*command).out for command in READERS)
        assert leases_so_far(raymc) == before + 1, "reading leads nobody"
        raymc.lead()
        raymc.until("one", JobState.SUCCEEDED)
        assert all("SUCCEEDED" in raymc.run(*command).out for command in READERS)


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_with_nobody_scheduling_it_is_said_on_stderr_what_would(unled: Commands, command: list[str]) -> None:
    accept(unled, one=a_spec(entrypoint="echo"))
    told = unled.run(*command)
    assert told.err.count("nothing starts jobs until `raymc scheduler run` or `raymc serve` runs") == 1
    assert "nothing starts jobs" not in told.out


def test_where_no_scheduler_ever_ran_nothing_is_said_of_a_last_look(unled: Commands) -> None:
    accept(unled, one=a_spec(entrypoint="echo"))
    said = "The clusters have not been looked at yet; no scheduler runs."
    for command in (["jobs"], ["status", "one"], ["info", "one"], ["events", "one"]):
        assert unled.run(*command).out.splitlines()[-1] == said


def test_the_age_of_what_is_shown_of_open_jobs_is_said_if_it_is_old(
    raymc: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    raymc.no_wait("--submission-id", "one", "--", "sleep 600")
    raymc.until("one", JobState.RUNNING)
    assert not any("The clusters" in raymc.run(*command).out for command in READERS)
    monkeypatch.setattr(session, "STALE_S", 0.0)
    for command in READERS:
        said = raymc.run(*command).out.splitlines()[-1]
        assert re.fullmatch(
            r"The clusters were last looked at .+ ago; the scheduler looks at them now\.", said
        )
    assert raymc.run("stop", "one").code == 0
    assert not any("The clusters" in raymc.run(*command).out for command in READERS)  # no job is open


def test_with_nobody_scheduling_the_age_of_what_is_shown_says_so(
    raymc: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    raymc.no_wait("--submission-id", "one", "--", "sleep 600")
    raymc.until("one", JobState.RUNNING)
    raymc.stop_leading()
    monkeypatch.setattr(session, "STALE_S", 0.0)
    for command in READERS:
        said = raymc.run(*command).out.splitlines()[-1]
        assert re.fullmatch(r"The clusters were last looked at .+ ago; no scheduler runs\.", said)


def test_status_is_one_line_with_the_reason(raymc: Commands) -> None:
    raymc.run("submit", "--submission-id", "one", "--", "exit 4")
    told = raymc.run("status", "one")
    assert told.code == 0
    assert told.out.startswith("FAILED on centos since 20")
    assert "exit code 4" in told.out
    row = raymc.json("status", "one")
    assert (row["state"], row["status"], row["cluster"]) == ("FAILED", "FAILED", "centos")
    assert "exit code 4" in row["message"]
    assert raymc.json("jobs") == [row]
    assert set(row) == set(JobView.model_fields)


def test_info_shows_everything_but_secrets(raymc: Commands) -> None:
    env = json.dumps({"env_vars": {"DB_PASSWORD": "correct-horse", "MODE": "fast"}})
    raymc.run(
        "submit",
        "--submission-id",
        "one",
        "--runtime-env-json",
        env,
        "--metadata-json",
        '{"project": "ml"}',
        "--tag",
        "nightly",
        "--",
        "echo correct-horse; echo saw it; exit 2",
    )
    shown = raymc.run("info", "one").out
    for words in (
        "one",
        "FAILED",
        "centos",
        '"MODE": "fast"',
        "project=ml",
        "nightly",
        "1 CPU",
        "exit code",
        "saw it",
    ):
        assert words in shown
    known = raymc.json("info", "one")
    assert known["exit_code"] == 2
    assert set(known) == set(JobDetail.model_fields) - {"logs"}
    assert [attempt["cluster"] for attempt in known["attempts"]] == ["centos"]
    everything = [raymc.run(*c, *more).out for c in READERS for more in ([], ["--json"])]
    assert "correct-horse" not in "".join([shown, *everything])


def test_events_tell_each_move_with_its_reason(raymc: Commands) -> None:
    raymc.run("submit", "--submission-id", "one", "--", "echo")
    moves = raymc.json("events", "one")
    assert [move["new"] for move in moves[:3]] == ["QUEUED", "PLACED", "SUBMITTED"]
    assert [move["old"] for move in moves] == [None, *(move["new"] for move in moves[:-1])]
    assert moves[-1]["new"] == "SUCCEEDED"
    assert all(move["reason"] for move in moves)
    shown = raymc.run("events", "one").out
    assert "placed on 'centos': only candidate" in shown
    assert re.match(r"when +from +to +try +why\n20[0-9-]+T[0-9:]+Z  -  +QUEUED +- +accepted\n", shown)


def test_logs_come_from_the_cluster_while_it_runs_and_from_our_copy_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commands(tmp_path, monkeypatch, fake("a", runner=ShellRunner())) as raymc:
        raymc.no_wait(
            "--submission-id", "one", "--", f"echo early; {lasts_until(tmp_path / 'go')}; echo late"
        )
        until(lambda: raymc.run("logs", "one").out.endswith("\nearly\n"))
        raymc.stop_leading()
        before = leases_so_far(raymc)
        assert raymc.run("logs", "one").out.splitlines()[-1] == "early"
        assert leases_so_far(raymc) == before + 1, "reading a log leads nobody"
        raymc.lead()
        (tmp_path / "go").touch()
        followed = raymc.run("logs", "-f", "one")
        assert followed.code == 0
        assert followed.out.splitlines()[-2:] == ["early", "late"]
        raymc.in_loop(lambda: setattr(raymc.fakes["a"].jobs["one"], "log", "another log"))
        assert raymc.run("logs", "one").out.splitlines()[-2:] == ["early", "late"]


def test_a_job_without_a_log_says_so(unled: Commands) -> None:
    accept(unled, one=a_spec(entrypoint="echo"))
    told = unled.run("logs", "one")
    assert (told.code, told.out) == (0, "")
    assert "one has no log yet: it is QUEUED" in told.err


def test_explain_names_the_true_reason_for_each_cluster_and_following_it_lets_the_job_start(
    two: Commands,
) -> None:
    two.use("centos", 3.0)
    assert two.run("drain", "mac", "--reason", "new disks").code == 0
    two.no_wait("--submission-id", "one", "--cpus", "2", "--", "echo")
    told = two.run("explain", "one")
    assert told.code == 0
    assert "centos: needs 2 CPU; free: 1 CPU of 4 CPU" in told.out
    assert "mac: it is drained: new disks" in told.out
    assert "Place 1 in the queue." in told.out
    assert "ask for 1 CPU instead of 2 CPU: 'centos' has that free" in told.out
    assert "let 'mac' take jobs again: `raymc undrain mac`" in told.out
    assert two.run("undrain", "mac").code == 0
    assert two.run("wait", "one").code == 0
    assert two.job("one").cluster == "mac"


def test_explain_of_a_placed_job_shows_the_scores_of_that_moment(two: Commands) -> None:
    two.run("submit", "--submission-id", "one", "--cpus", "3", "--", "echo")
    told = two.run("explain", "one").out
    assert "Placed on centos: only candidate." in told  # mac has 2 CPUs
    assert "cluster  fit   weight" in told
    assert "✗ mac: " in told
    explained = two.json("explain", "one")
    assert explained["decision"]["scores"]["centos"]["parts"]["fit"] == 0.25


def test_explain_of_a_job_that_waits_for_another_names_it(raymc: Commands) -> None:
    raymc.no_wait("--submission-id", "first", "--", "sleep 30")
    raymc.until("first", JobState.RUNNING)
    raymc.no_wait("--submission-id", "second", "--after", "first", "--", "echo")
    assert "It waits for its dependencies: first (RUNNING)." in raymc.run("explain", "second").out


def test_a_drained_cluster_is_shown_as_drained_and_gets_no_job(two: Commands) -> None:
    two.use("centos", 4.0)
    two.until(two.no_wait("--", "sleep 30"), JobState.RUNNING)
    two.use("centos", 0.0)
    assert two.run("drain", "mac").out == "mac gets no new jobs; our jobs there, which may end: 1.\n"
    assert [row["drained"] for row in two.json("clusters")] == [False, True]
    two.run("submit", "--submission-id", "one", "--cluster", "mac", "--", "echo")
    assert two.job("one").cluster == "centos"
    assert two.run("undrain", "mac").out == "mac may have new jobs again.\n"
    assert [row["drained"] for row in two.json("clusters")] == [False, False]
