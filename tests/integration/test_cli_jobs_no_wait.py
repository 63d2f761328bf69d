"""Submitting without waiting: the id is all of stdout, and it is said who schedules, or that nobody does."""

from tests.support.job_commands import Commands, raymc

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.states import JobState

__all__ = ["raymc"]


def test_the_id_is_all_of_stdout_and_who_schedules_is_said(raymc: Commands) -> None:
    first = raymc.run("submit", "--submission-id", "first", "--", "echo")
    assert first.code == 0, first.err
    with raymc.scheduler() as opened:
        lease = opened.store.leases.current(now=SystemClock().now())
    assert lease is not None
    host, pid, _ = lease.holder.split(":")
    done = raymc.run("submit", "--no-wait", "--submission-id", "one", "--", "echo")
    assert (done.code, done.out) == (0, "one\n")
    assert done.err.strip() == f"It is accepted; process {pid} on {host} schedules."
    assert raymc.run("wait", "one").code == 0


def test_where_nobody_schedules_and_nobody_may_start_it_that_is_said_and_the_job_is_kept(
    raymc: Commands,
) -> None:
    raymc.stop_leading()
    done = raymc.run("submit", "--no-wait", "--submission-id", "one", "--", "echo")
    assert (done.code, done.out) == (0, "one\n")
    assert done.err.count("nothing starts jobs until `raymc scheduler run` or `raymc serve` runs") == 1
    assert "It is accepted." in done.err
    assert raymc.job("one").state is JobState.QUEUED
    raymc.lead()
    assert raymc.run("wait", "one").code == 0


def test_json_has_every_job_and_who_schedules(raymc: Commands) -> None:
    raymc.run("submit", "--", "echo")  # from now on somebody leads
    told = raymc.json("submit", "--no-wait", "--array", "0-1", "--submission-id", "arr", "--", "sleep {i}")
    assert told["group"] == "arr"
    assert told["leader"]
    assert [job["submission_id"] for job in told["jobs"]] == ["arr-0", "arr-1"]
