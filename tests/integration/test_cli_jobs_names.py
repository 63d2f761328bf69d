"""Names and groups are shown, filter and stand for ids; generated names are shown nowhere."""

import re

import pytest
from tests.support.builders import a_spec
from tests.support.job_commands import Commands, raymc
from tests.support.raymc import screen

from ray_multicluster_scheduler.cli.commands.top import JobsOnScreen
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.states import JobState

__all__ = ["raymc"]


@pytest.fixture
def named(raymc: Commands) -> Commands:
    """An array of two that carries a name, of which the second has failed, and a job without a name."""
    raymc.run(
        "submit", "--array", "0-1", "--submission-id", "grp", "--name", "squares", "--", "echo n{i}; exit {i}"
    )
    raymc.run("submit", "--submission-id", "alone", "--", "exit 3")
    return raymc


@pytest.mark.parametrize("word", ["grp", "squares"])
@pytest.mark.parametrize("command", ["logs", "status", "info", "events", "explain"])
def test_a_group_or_a_name_is_accepted_wherever_an_id_is(named: Commands, command: str, word: str) -> None:
    shown = named.run(command, word)
    assert shown.code == 0, shown.err
    assert "grp-0" in shown.out
    assert "grp-1" in shown.out
    if command != "logs":
        assert len(named.json(command, word)) == 2


def test_the_logs_of_a_group_come_one_after_the_other_with_a_line_about_each(named: Commands) -> None:
    assert named.run("logs", "grp", "--tail", "1").out == (
        "==> grp-0 SUCCEEDED on centos <==\nn0\n==> grp-1 FAILED on centos <==\nn1\n"
    )
    assert named.run("logs", "grp-1", "--tail", "0").out == ""
    assert named.run("wait", "grp").code == 1


def test_the_logs_of_several_jobs_are_followed_together_each_line_after_its_id(named: Commands) -> None:
    followed = named.run("logs", "-f", "grp", "alone")
    assert followed.code == 1
    assert {"grp-0 | n0", "grp-1 | n1"} <= set(followed.out.splitlines())
    assert all(line.startswith(("grp-0 | ", "grp-1 | ", "alone | ")) for line in followed.out.splitlines())
    assert "3 jobs in" in followed.err
    assert named.run("logs", "-f", "grp-0", "grp-0").out.splitlines()[-1] == "n0"


@pytest.mark.parametrize("command", ["logs", "status", "info", "events", "explain"])
def test_several_ids_are_accepted_and_each_job_is_shown_once(named: Commands, command: str) -> None:
    shown = named.run(command, "alone", "grp-0", "alone")
    assert shown.code == 0, shown.err
    assert shown.out.index("alone") < shown.out.index("grp-0")
    if command != "logs":
        assert len(named.json(command, "alone", "grp-0", "alone")) == 2
    assert "no job has the id 'nobody'" in named.refused(command, "alone", "nobody")


def test_a_name_is_a_column_and_a_filter_and_a_generated_one_is_not(
    named: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [row["submission_id"] for row in named.json("jobs", "--name", "squares")] == ["grp-1", "grp-0"]
    assert [row["submission_id"] for row in named.json("jobs", "--since", "1h", "--limit", "1")] == ["alone"]
    assert named.json("jobs", "--since", "0.0001s") == []
    assert len(named.json("jobs", "--since", "2w", "--limit", "0")) == len(named.json("jobs", "--limit", "0"))
    everything = named.json("jobs", "--limit", "0")
    for date in ("2020-01-31", "2020-01-31 22:00", "2020-01-31T22:00:00+08:00"):
        assert named.json("jobs", "--since", date, "--limit", "0") == everything
    assert named.json("jobs", "--since", "2999-01-01") == []
    assert "--since" in (refused := named.refused("jobs", "--since", "yesterday"))
    assert "'yesterday' is no span of time" in refused
    for name, value in screen(80).items():
        monkeypatch.setenv(name, value)
    shown = [named.run("jobs"), named.run("info", "alone"), named.run("wait", "alone")]
    assert "squares" in shown[0].out
    for each in shown:
        assert not re.search("job_[0-9a-f]{32}", each.out + each.err)


def test_the_end_of_an_array_tells_which_failed_and_how_to_see_more(named: Commands) -> None:
    told = named.run("wait", "grp").err
    assert "job grp-1 (squares) FAILED on 'centos'" in told
    assert "`raymc logs grp`" in told
    assert "`raymc retry grp`" in told


def test_a_pipe_gets_one_line_per_job_with_every_column_and_times_to_sort_by(named: Commands) -> None:
    heading, *rows = named.run("jobs").out.splitlines()
    assert heading.split() == "id name group state cluster user changed ran try command why".split()  # noqa: SIM905
    assert rows[0].split()[:7] == ["alone", "-", "-", "FAILED", "centos", "ann", rows[0].split()[6]]
    assert rows[0].split()[6].endswith("Z")
    assert rows[1].split()[:3] == ["grp-1", "squares", "grp"]
    assert not any(line.endswith(" ") or "─" in line for line in [heading, *rows])
    plan = named.run("submit", "--dry-run", "--", "echo").out
    assert not any(line != line.rstrip() for line in plan.splitlines())
    assert "\n\n\n" not in plan


def test_an_id_from_python_is_short_on_a_screen_of_any_width_and_its_beginning_names_the_job(
    raymc: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "sub_0123456789abcdef0123456789abcdef"
    raymc.run("submit", "--submission-id", long, "--", "echo")
    assert long in raymc.run("jobs").out
    for columns in (80, 200):
        for name, value in screen(columns).items():
            monkeypatch.setenv(name, value)
        shown = raymc.run("jobs").out
        assert long[:16] in shown
        assert long[:17] not in shown
    assert raymc.json("status", long[:16])["submission_id"] == long


def test_after_takes_a_name_and_stop_asks_before_it_stops_more_than_was_named(raymc: Commands) -> None:
    raymc.no_wait("--array", "0-1", "--submission-id", "grp", "--name", "first", "--", "sleep {i}00")
    raymc.no_wait("--submission-id", "then", "--after", "first", "--", "echo")
    assert set(raymc.job("then").spec.depends_on) == {"grp-0", "grp-1"}
    assert "this would stop" in raymc.refused("stop", "grp")
    assert raymc.run("stop", "grp", "then", "--yes").code == 0


def test_the_queue_on_the_screen_begins_with_what_is_next(raymc: Commands) -> None:
    raymc.stop_leading()
    with raymc.scheduler() as opened:
        later = [(f"q{number}", a_spec(entrypoint="echo")) for number in range(3)]
        urgent = ("urgent", a_spec(entrypoint="echo", priority=5))
        opened.store.jobs.add([*later, urgent], now=SystemClock().now())
        opened.store.jobs.add(
            [("waits", a_spec(entrypoint="echo", depends_on=("q0",)))], now=SystemClock().now()
        )
        jobs = JobsOnScreen(service=opened.service)
        jobs.refresh()
        assert [job.submission_id for job in jobs.shown] == ["urgent", "q0", "q1", "q2", "waits"]


def test_claims_stand_beside_use(raymc: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    raymc.until(raymc.no_wait("--cpus", "3", "--", "sleep 600"), JobState.RUNNING)
    (row,) = raymc.json("clusters")
    assert (row["used"]["CPU"], row["claimed"]) == (0.0, {"CPU": 3.0})
    heading, line = raymc.run("clusters").out.splitlines()
    assert dict(zip(heading.split(), line.split(), strict=False))["CPU-claimed"] == "3"
    for columns in (80, 140):
        for name, value in screen(columns).items():
            monkeypatch.setenv(name, value)
        shown = raymc.run("clusters").out
        assert "0/4" in shown
        assert "3 claimed" in shown
        assert "▒▒▒▒▒▒░░" in shown
