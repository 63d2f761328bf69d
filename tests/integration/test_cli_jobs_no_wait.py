"""Who schedules when nobody waits: another process, this command for a moment, or nobody, and it is said."""

import pytest
from tests.integration.job_commands import Commands, raymc, two

from ray_multicluster_scheduler.cli.commands import submit as submit_command
from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.local_service import LocalService

__all__ = ["raymc", "two"]


def test_with_no_scheduler_running_the_job_is_sent_and_the_id_is_all_of_stdout(raymc: Commands) -> None:
    done = raymc.run("submit", "--no-wait", "--submission-id", "one", "--", "sleep 30")
    assert (done.code, done.out) == (0, "one\n")
    assert "Sent to centos." in done.err
    assert "one" in raymc.fakes["centos"].jobs
    with raymc.scheduler() as opened:
        assert opened.store.leader(now=SystemClock().now()) is None


def test_a_job_without_room_is_kept_and_the_command_says_for_whom_it_waits(two: Commands) -> None:
    two.in_loop(lambda: two.fakes["centos"].use({"CPU": 4.0}))
    done = two.run("submit", "--no-wait", "--submission-id", "one", "--cpus", "3", "--", "echo")
    assert (done.code, done.out) == (0, "one\n")
    assert "It waits: centos: needs 3 CPU; free: 0 CPU of 4 CPU; mac: needs 3 CPU" in done.err
    assert "No scheduler is running: `raymc wait one`" in done.err
    assert two.job("one").state is JobState.QUEUED
    two.in_loop(lambda: two.fakes["centos"].use({}))
    assert two.run("wait", "one").code == 0


def test_a_job_that_can_never_start_is_not_said_to_be_sent(raymc: Commands) -> None:
    raymc.run("submit", "--submission-id", "train", "--", "exit 3")
    done = raymc.run("submit", "--no-wait", "--after", "train", "--", "echo")
    assert "It was never sent: dependency 'train' failed: its program ended with exit code 3" in done.err
    done = raymc.run("retry", "--no-wait", done.out.strip())
    assert "It was never sent: dependency 'train' failed: its program ended with exit code 3" in done.err
    assert "Sent to" not in done.err


def test_a_job_that_waits_for_another_one_says_for_which(raymc: Commands) -> None:
    raymc.no_wait("--submission-id", "train", "--", "sleep 600")
    done = raymc.run("submit", "--no-wait", "--submission-id", "eval", "--after", "train", "--", "echo")
    assert "It waits for its dependencies: train (" in done.err
    assert "No scheduler is running: `raymc wait eval`, `raymc top` or `raymc serve` starts it." in done.err


def test_a_job_that_waits_in_vain_is_said_to_fail(raymc: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    raymc.run("submit", "--submission-id", "train", "--", "exit 3")
    monkeypatch.setattr(submit_command, "send_what_fits", lambda *_, **__: None)
    with raymc.scheduler() as opened:  # it leads and does nothing: the end of the job is not written yet
        lease = opened.store.acquire_lease("test", ttl_s=60, now=SystemClock().now())
        assert lease is not None
        monkeypatch.setattr(LocalService, "leader", lambda _: None)
        done = raymc.run("submit", "--no-wait", "--submission-id", "eval", "--after", "train", "--", "echo")
        opened.store.release_lease(lease)
    assert "It will fail: train, which it needs, has failed (its program ended with exit code 3)." in done.err
    assert "starts it" not in done.err


def test_with_a_scheduler_running_the_job_is_only_accepted_and_its_leader_named(raymc: Commands) -> None:
    with raymc.scheduler(start=True) as opened:
        first = raymc.run("submit", "--submission-id", "first", "--", "echo")
        assert first.code == 0, first.err
        lease = opened.store.leader(now=SystemClock().now())
        assert lease is not None
        host, pid, _ = lease.holder.split(":")
        done = raymc.run("submit", "--no-wait", "--submission-id", "one", "--", "echo")
        assert (done.code, done.out) == (0, "one\n")
        assert done.err.strip() == f"It is accepted; process {pid} on {host} schedules."
        assert raymc.run("wait", "one").code == 0


def test_json_tells_what_became_of_each_job(raymc: Commands) -> None:
    told = raymc.json("submit", "--no-wait", "--array", "0-1", "--submission-id", "arr", "--", "sleep {i}")
    assert (told["group"], told["leader"]) == ("arr", None)
    assert [job["submission_id"] for job in told["jobs"]] == ["arr-0", "arr-1"]
    assert all(job["cluster"] for job in told["jobs"])
