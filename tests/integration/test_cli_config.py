"""`raymc config check` as a user meets it: what it prints and how it exits."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_multicluster_scheduler.cli.main import main

GOOD = """
clusters:
  centos:
    head_address: 192.168.0.145:10001
    tags: [cpu, stable]
    runtime_env: {conda: ts, env_vars: {API_TOKEN: hush}}
"""
WRONG = "clusters:\n  centos:\n    head_address: [a]\n    wieght: 1\n    tags: cpu\n"

Raymc = Callable[..., int]


@pytest.fixture
def raymc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Raymc:
    """Run the command line in an empty directory with an empty home; returns the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RAY_MULTICLUSTER_CONFIG", raising=False)

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["raymc", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    return run


def test_a_right_file_is_summed_up_without_values_of_variables(
    raymc: Raymc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.yaml").write_text(GOOD)
    assert raymc("config", "check", "my.yaml") == 0
    out = capsys.readouterr().out
    assert "✓" in out
    assert "1 cluster\n" in out
    for word in (
        "centos",
        "http://192.168.0.145:8265",
        "ray://192.168.0.145:10001",
        "cpu, stable",
        "$API_TOKEN",
    ):
        assert word in out
    assert "hush" not in out


def test_a_pythonpath_that_names_a_checkout_of_the_older_package_is_pointed_out(
    raymc: Raymc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "{PYTHONPATH: '/home/zorro/tools:/home/zorro/ray_multicluster_scheduler:'}"
    (tmp_path / "my.yaml").write_text(GOOD.replace("{API_TOKEN: hush}", path))
    assert raymc("config", "check", "my.yaml") == 0
    out = capsys.readouterr().out
    assert "cluster 'centos': PYTHONPATH names /home/zorro/ray_multicluster_scheduler:" in out
    assert raymc("config", "check", "my.yaml", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["warnings"]) == ["centos"]


def test_a_wrong_file_is_refused_with_every_problem_as_it_was_written(
    raymc: Raymc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.yaml").write_text(WRONG)
    assert raymc("config", "check", "my.yaml") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3 problems" in captured.err
    assert "line 4: clusters.centos.wieght: unknown key; did you mean 'weight'?" in captured.err
    assert "a list such as [one, two], found 'cpu'" in captured.err  # square brackets are not markup
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("arguments", [(), ("--config", "clusters.yaml"), ("clusters.yaml",)])
def test_without_a_name_the_usual_places_are_searched(
    raymc: Raymc, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    (tmp_path / "clusters.yaml").write_text(GOOD)
    assert raymc("config", "check", *arguments) == 0
    assert "centos" in capsys.readouterr().out


def test_no_file_anywhere_names_the_places(raymc: Raymc, capsys: pytest.CaptureFixture[str]) -> None:
    assert raymc("config", "check") == 2
    assert "raymc local up" in capsys.readouterr().err


def test_two_names_for_one_file_are_refused(raymc: Raymc, capsys: pytest.CaptureFixture[str]) -> None:
    assert raymc("config", "check", "a.yaml", "--config", "b.yaml") == 2
    assert "name the file once" in capsys.readouterr().err


def test_json_tells_programs_the_same(
    raymc: Raymc, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "wrong.yaml").write_text(WRONG)
    assert raymc("config", "check", "good.yaml", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert answer["clusters"] == [
        {
            "name": "centos",
            "head_address": "192.168.0.145:10001",
            "dashboard": "http://192.168.0.145:8265",
            "tags": ["cpu", "stable"],
            "runtime_env": ["conda", "env_vars"],
            "env_vars": ["API_TOKEN"],
        }
    ]
    assert raymc("config", "check", "wrong.yaml", "--json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert len(answer["problems"]) == 3
    assert raymc("config", "check", "absent.yaml", "--json") == 2
    assert "absent.yaml" in json.loads(capsys.readouterr().out)["problems"][0]
