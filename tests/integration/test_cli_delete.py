"""`raymc delete` forgets what has ended, and nothing else."""

from tests.support.job_commands import Commands
from tests.support.job_commands import raymc_both_ways as raymc

__all__ = ["raymc"]


def test_a_job_that_has_ended_is_forgotten_here_and_on_its_cluster(raymc: Commands) -> None:
    raymc.run("submit", "--submission-id", "one", "--name", "train", "--", "echo hello")
    raymc.run("submit", "--submission-id", "two", "--", "exit 3")
    done = raymc.run("delete", "train", "two")
    assert (done.code, done.out) == (0, "one: deleted\ntwo: deleted\n")
    assert raymc.json("jobs") == []
    assert not raymc.fakes["centos"].cluster.jobs
    assert "'one'" in raymc.refused("delete", "one")
    assert raymc.run("submit", "--submission-id", "one", "--", "echo").code == 0


def test_a_group_is_forgotten_and_programs_read_its_ids(raymc: Commands) -> None:
    raymc.run("submit", "--array", "0-1", "--submission-id", "grp", "--", "echo {i}")
    for words in (["--group", "grp"], ["grp"]):
        told = raymc.refused("delete", *words)
        assert (
            "this would delete 2 jobs (2 SUCCEEDED) with their logs, here and on their clusters; say --yes"
            in told
        )
    assert len(raymc.json("jobs")) == 2
    assert raymc.json("delete", "--yes", "--group", "grp") == {"deleted": ["grp-0", "grp-1"]}
    assert raymc.json("jobs") == []


def test_what_has_not_ended_is_refused_with_the_way_out_and_nothing_goes(raymc: Commands) -> None:
    raymc.run("submit", "--submission-id", "one", "--", "echo")
    raymc.no_wait("--submission-id", "long", "--", "sleep 60")
    told = raymc.refused("delete", "one", "long")
    assert "job 'long' is " in told
    assert "can be deleted when it has ended; stop it first" in told
    assert raymc.json("status", "one")["state"] == "SUCCEEDED"
    assert raymc.run("stop", "long").code == 0
    assert raymc.run("delete", "one", "long").code == 0


def test_jobs_are_named_in_one_way(raymc: Commands) -> None:
    assert "in one way" in raymc.refused("delete")
    assert "in one way" in raymc.refused("delete", "one", "--group", "grp")
