"""`raymc ps` shows what runs on a cluster, whether its program uses Ray or not."""

from tests.support.job_commands import Commands, raymc

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing.fake_cluster import parse_submission

__all__ = ["raymc"]


def test_a_job_that_never_calls_ray_init_is_shown_while_it_runs(raymc: Commands) -> None:
    assert raymc.run("ps").out == "Nothing runs on any cluster that answers.\n"
    raymc.no_wait("--submission-id", "nap", "--", "sleep 600")
    raymc.until("nap", JobState.RUNNING)
    (item,) = raymc.json("ps")["items"]
    assert (item["kind"], item["state"], item["what"], item["pid"]) == ("job", "RUNNING", "sleep 600", None)
    assert item["why"] == "submitted as nap"
    shown = raymc.run("ps").out
    words = shown.splitlines()[1].split()
    assert words.pop(4).endswith("s")  # how long it has run
    assert " ".join(words) == "centos job - RUNNING sleep 600 submitted as nap"


def test_a_job_that_waits_for_room_on_its_cluster_is_shown_as_pending(raymc: Commands) -> None:
    big = parse_submission({"submission_id": "big", "entrypoint": "sleep 600", "entrypoint_num_cpus": 64})
    raymc.in_loop(lambda: raymc.fakes["centos"].cluster.submit(big))
    (item,) = raymc.json("ps")["items"]
    assert (item["state"], item["why"]) == ("PENDING", "submitted as big")


def test_a_job_that_has_ended_is_not_shown(raymc: Commands) -> None:
    assert raymc.run("submit", "--", "echo").code == 0
    assert raymc.json("ps")["items"] == []
