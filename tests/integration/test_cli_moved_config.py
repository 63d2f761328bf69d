"""A clusters.yaml is moved, or is that of local clusters that are down: its jobs are still there."""

import json
from pathlib import Path

import pytest
from tests.integration.job_commands import Commands, raymc

from ray_multicluster_scheduler.local import Sandbox

__all__ = ["raymc"]


def test_after_a_move_the_history_and_the_queue_are_there(raymc: Commands, tmp_path: Path) -> None:
    ended = raymc.run("submit", "--name", "before", "--", "echo", "1")
    assert ended.code == 0, ended.err
    waiting = raymc.no_wait("--cpus", "4", "--", "sleep", "1000")
    new = tmp_path / "projects" / "ml" / "clusters.yaml"
    new.parent.mkdir(parents=True)
    raymc.config.rename(new)
    first = raymc.run("jobs", "--config", str(new))
    assert f"{new} was at {raymc.config}; its jobs are found in {tmp_path / 'home'}" in first.err
    assert "before" in first.out
    assert waiting[:12] in first.out
    again = raymc.run("jobs", "--config", str(new))
    assert (again.code, again.err) == (0, "")
    assert raymc.run("stop", "--config", str(new), waiting).code == 0


def test_while_the_local_clusters_are_down_their_jobs_are_shown_and_none_is_accepted(
    raymc: Commands, tmp_path: Path
) -> None:
    local = tmp_path / "home" / "local"
    local.mkdir(parents=True)
    raymc.config = raymc.config.rename(local / "clusters.yaml")
    (local / "state.json").write_text(json.dumps({"config": str(raymc.config), "heads": []}))
    assert raymc.run("submit", "--name", "before", "--", "echo", "1").code == 0

    assert Sandbox.clean(tmp_path / "home") == 0  # what `raymc local down` does
    shown = raymc.run("jobs")
    assert (shown.code, shown.err) == (0, "")
    assert "before" in shown.out
    for command in (["submit"], ["submit", "--dry-run"], ["submit", "--no-wait"]):
        refused = raymc.run(*command, "--", "echo", "2")
        assert refused.code != 0
        assert "the local clusters are down: `raymc local up` starts them" in refused.err
    assert len(raymc.json("jobs")) == 1


@pytest.mark.parametrize("command", ["jobs", "clusters"])
def test_a_copy_has_a_queue_of_its_own(raymc: Commands, tmp_path: Path, command: str) -> None:
    assert raymc.run("submit", "--name", "before", "--", "echo", "1").code == 0
    (tmp_path / "copy").mkdir()
    copy = tmp_path / "copy" / "clusters.yaml"
    copy.write_text(raymc.config.read_text())
    done = raymc.run(command, "--config", str(copy))
    assert (done.code, done.err) == (0, "")
    assert "before" not in done.out
