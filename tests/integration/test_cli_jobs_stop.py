"""`raymc stop` and `raymc wait`."""

from tests.support.job_commands import Commands
from tests.support.job_commands import raymc_both_ways as raymc

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.request import JobRequest

__all__ = ["raymc"]


def test_stop_ends_running_and_waiting_jobs(raymc: Commands) -> None:
    running = raymc.no_wait("--cpus", "4", "--", "sleep 60")
    raymc.until(running, JobState.RUNNING)
    waiting = raymc.no_wait("--cpus", "4", "--", "sleep 60")
    done = raymc.run("stop", running, waiting)
    assert (done.code, done.out) == (0, f"{running}: STOPPED\n{waiting}: STOPPED\n")
    assert raymc.fakes["centos"].runs[0].end is not None
    assert len(raymc.fakes["centos"].runs) == 1


def test_stopping_what_has_ended_changes_nothing(raymc: Commands) -> None:
    raymc.run("submit", "--submission-id", "one", "--", "echo")
    done = raymc.run("stop", "one")
    assert (done.code, done.out) == (0, "Nothing to stop: 1 SUCCEEDED.\n")
    assert raymc.job("one").state is JobState.SUCCEEDED


def test_all_mine_leaves_the_jobs_of_others_alone(raymc: Commands) -> None:
    mine = raymc.no_wait("--", "sleep 60")
    with raymc.scheduler() as opened:
        (others,) = opened.service.submit(
            [JobRequest(user="bob", entrypoint="sleep 60", submission_id="others")]
        )
    done = raymc.run("stop", "--all-mine", "--yes")
    assert (done.code, done.out) == (0, f"{mine}: STOPPED\n")
    assert raymc.job(others.submission_id).state is not JobState.STOPPED
    assert raymc.run("stop", "others").code == 0
    assert raymc.run("stop", "--all-mine", "--yes").out == "Nothing to stop: you have no open jobs.\n"


def test_wait_gives_up_after_its_timeout_and_the_job_goes_on(raymc: Commands) -> None:
    napping = raymc.no_wait("--", "sleep 60")
    done = raymc.run("wait", napping, "--timeout", "0.5")
    assert done.code == 1
    assert "0.5 s" in done.err
    assert napping in done.err
    assert "Traceback" not in done.err
    assert not raymc.job(napping).final


def test_wait_ends_with_1_when_one_of_several_failed(raymc: Commands) -> None:
    good, bad = raymc.no_wait("--", "echo fine"), raymc.no_wait("--", "echo broken; exit 1")
    done = raymc.run("wait", good, bad)
    assert done.code == 1
    assert "1 FAILED" in done.err
    assert "1 SUCCEEDED" in done.err
    assert "| broken" in done.err
    assert "| fine" not in done.err
