"""A clusters.yaml is moved, or is that of local clusters that are down: its jobs are still there."""

import json
from pathlib import Path

import pytest
import yaml
from tests.support.job_commands import Commands, raymc, served

import ray_multicluster_scheduler
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


@pytest.mark.parametrize("over_http", [False, True])
def test_whoever_submits_is_told_of_another_queue_on_the_same_cluster(
    raymc: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over_http: bool
) -> None:
    assert raymc.run("submit", "--", "echo", "1").code == 0
    (tmp_path / "copy").mkdir()
    first = raymc.config
    raymc.config = tmp_path / "copy" / "clusters.yaml"
    raymc.config.write_text(first.read_text())
    with served(raymc, monkeypatch) if over_http else raymc.scheduler(start=True):
        named = [] if over_http else ["--config", str(raymc.config)]
        done = raymc.run("submit", *named, "--array", "2", "--", "echo", "2")
        assert done.code == 0, done.err
        (line,) = [line for line in done.err.splitlines() if "kept apart" in line]
        assert line.startswith(
            f"cluster 'centos' is also in {first}, whose jobs are kept apart; to share one"
        )
        assert line.endswith(f"under `scheduler:` in {raymc.config}")
        if not over_http:
            ray_multicluster_scheduler.initialize_scheduler_environment(raymc.config)
            with pytest.warns(UserWarning, match="is also in .* whose jobs are kept apart"):
                ray_multicluster_scheduler.submit_job("echo 3")
            ray_multicluster_scheduler.get_unified_scheduler().stop()

    store = line.partition("`store: ")[2].partition("`")[0]
    shared = yaml.safe_load(raymc.config.read_text())
    shared["scheduler"]["store"] = store
    raymc.config.write_text(yaml.safe_dump(shared))
    monkeypatch.delenv("RAY_MULTICLUSTER_ADDRESS", raising=False)
    done = raymc.run("submit", "--config", str(raymc.config), "--", "echo", "4")
    assert (done.code, "kept apart" in done.err) == (0, False)
    assert len(raymc.json("jobs", "--config", str(first))) == 2
