"""Names and groups are shown, filter and stand for ids; generated names are shown nowhere."""

import re

import pytest
from tests.builders import a_spec
from tests.integration.job_commands import Commands, raymc
from tests.integration.raymc import screen

from ray_multicluster_scheduler.cli.commands.top import JobsOnScreen
from ray_multicluster_scheduler.clock import SystemClock

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
    assert "2 jobs; --follow goes with one" in named.refused("logs", "-f", "grp")


def test_a_name_is_a_column_and_a_filter_and_a_generated_one_is_not(
    named: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [row["submission_id"] for row in named.json("jobs", "--name", "squares")] == ["grp-1", "grp-0"]
    assert [row["submission_id"] for row in named.json("jobs", "--since", "1h", "--limit", "1")] == ["alone"]
    assert named.json("jobs", "--since", "0.0001s") == []
    assert "--since wants a time such as 90s" in named.refused("jobs", "--since", "yesterday")
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
    assert heading.split() == "id name group state cluster user changed ran try command".split()  # noqa: SIM905
    assert rows[0].split()[:7] == ["alone", "-", "-", "FAILED", "centos", "ann", rows[0].split()[6]]
    assert rows[0].split()[6].endswith("Z")
    assert rows[1].split()[:3] == ["grp-1", "squares", "grp"]
    assert not any(line.endswith(" ") or "─" in line for line in [heading, *rows])
    plan = named.run("submit", "--dry-run", "--", "echo").out
    assert not any(line != line.rstrip() for line in plan.splitlines())
    assert "\n\n\n" not in plan


def test_after_takes_a_name_and_stop_asks_before_it_stops_more_than_was_named(raymc: Commands) -> None:
    raymc.no_wait("--array", "0-1", "--submission-id", "grp", "--name", "first", "--", "sleep {i}00")
    raymc.no_wait("--submission-id", "then", "--after", "first", "--", "echo")
    assert set(raymc.job("then").spec.depends_on) == {"grp-0", "grp-1"}
    assert "this would stop" in raymc.refused("stop", "grp")
    assert raymc.run("stop", "grp", "then", "--yes").code == 0


def test_the_queue_on_the_screen_begins_with_what_is_next(raymc: Commands) -> None:
    with raymc.scheduler() as opened:
        later = [(f"q{number}", a_spec(entrypoint="echo")) for number in range(3)]
        urgent = ("urgent", a_spec(entrypoint="echo", priority=5))
        opened.store.add([*later, urgent], now=SystemClock().now())
        opened.store.add([("waits", a_spec(entrypoint="echo", depends_on=("q0",)))], now=SystemClock().now())
        jobs = JobsOnScreen(service=opened.service)
        jobs.refresh()
        assert [job.submission_id for job in jobs.shown] == ["urgent", "q0", "q1", "q2", "waits"]


def test_claims_stand_beside_use(raymc: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    raymc.no_wait("--cpus", "3", "--", "sleep 600")
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
