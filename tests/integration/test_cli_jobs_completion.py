"""Shell completion offers what is there, and never a word of complaint."""

from pathlib import Path

import pytest
from tests.support.job_commands import Commands, commands, two
from tests.support.system import fake

__all__ = ["two"]


def offered(raymc: Commands, monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """Complete a command line as bash does."""
    monkeypatch.setenv("_RAYMC_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    done = raymc.run()
    monkeypatch.delenv("_RAYMC_COMPLETE")
    assert "Traceback" not in done.err
    return done.out.split()


def test_ids_groups_and_clusters_complete(two: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    two.run("submit", "--array", "0-1", "--submission-id", "night", "--", "echo {i}")
    two.run("submit", "--submission-id", "day", "--", "echo")
    assert offered(two, monkeypatch, "raymc status ni") == ["night-1", "night-0"]
    assert offered(two, monkeypatch, "raymc stop day ") == ["day", "night-1", "night-0"]
    assert offered(two, monkeypatch, "raymc wait --group ") == ["night"]
    assert offered(two, monkeypatch, "raymc submit --after d") == ["day"]
    assert offered(two, monkeypatch, "raymc drain ") == ["centos", "mac"]
    assert offered(two, monkeypatch, "raymc submit --cluster m") == ["mac"]
    assert offered(two, monkeypatch, "raymc expl") == ["explain"]


def test_without_a_configuration_or_a_store_there_is_nothing_to_offer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commands(tmp_path, monkeypatch, fake("centos", 4), leads=False) as raymc:
        assert offered(raymc, monkeypatch, "raymc status ") == []
        assert not (raymc.folder / "home").exists()
        raymc.config.unlink()
        assert offered(raymc, monkeypatch, "raymc status ") == []
        assert offered(raymc, monkeypatch, "raymc drain ") == []
