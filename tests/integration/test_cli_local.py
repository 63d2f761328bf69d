"""`raymc local` as a user meets it, up to the point where Ray would start."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_multicluster_scheduler.cli.commands.local import wanted
from ray_multicluster_scheduler.cli.main import main
from ray_multicluster_scheduler.local import HeadSpec

Raymc = Callable[..., int]
NOTHING = {
    "clusters": None,
    "cpus": None,
    "gpus": None,
    "names": None,
    "token": None,
    "python": [],
    "tokens": {},
}


@pytest.fixture
def raymc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Raymc:
    """Run the command line with an empty home; returns the exit code."""
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path))

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["raymc", "local", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    return run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--clusters", "2", "--cpus", "4,8,2"], "--cpus has 3 numbers for 2 clusters"),
        (["--names", "a,b,c", "--gpus", "1,0"], "--gpus has 2 numbers for 3 clusters"),
        (["--names", "a,b", "--clusters", "3"], "--names has 2 names for 3 clusters"),
        (["--names", "a,a"], "'a' and 'a' must differ"),
        (["--names", "a,"], "cannot name a cluster"),
        (["--cpus", "-1"], "CPUs must be a whole number of 0 or more"),
        (["--cpus", "four"], "--cpus wants whole numbers such as 4 or 4,8, not 'four'"),
        (["--names", "a,b", "--token", "c"], "--token names 'c', but the clusters are a, b"),
        (["--names", "a", "--python", "/usr/bin/python3"], "--python wants NAME=PATH"),
        (["--names", "a", "--python", "a=/no/such/python"], "--python wants NAME=PATH"),
        (["--names", "a", "--python", f"b={sys.executable}"], "--python names 'b'"),
        (["--clusters", "0"], "--clusters"),
    ],
)
def test_a_wrong_request_gets_one_clear_message_and_exit_code_2(
    raymc: Raymc, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert raymc("up", *options) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err


def test_one_number_is_for_all_clusters_and_several_are_for_one_each() -> None:
    assert wanted(**NOTHING) == [HeadSpec(name="local-1"), HeadSpec(name="local-2")]
    assert [s.cpus for s in wanted(**NOTHING | {"cpus": "8"})] == [8, 8]
    assert [s.cpus for s in wanted(**NOTHING | {"cpus": "4,8,2"})] == [4, 8, 2]
    assert [(s.name, s.gpus) for s in wanted(**NOTHING | {"names": "centos, mac", "gpus": "0,1"})] == [
        ("centos", 0),
        ("mac", 1),
    ]
    assert len(wanted(**NOTHING | {"clusters": 1})) == 1


def test_a_cluster_that_is_up_keeps_its_token_and_a_new_one_gets_its_own() -> None:
    options = NOTHING | {"names": "a,b,c", "token": "a,b", "tokens": {"a": "known"}}
    a, b, c = wanted(**options)
    assert a.token == "known"
    assert b.token is not None
    assert len(b.token) == 64
    assert c.token is None


def test_status_and_down_say_that_nothing_is_up(raymc: Raymc, capsys: pytest.CaptureFixture[str]) -> None:
    assert raymc("status") == 1
    assert "raymc local up" in capsys.readouterr().out
    assert raymc("status", "--json") == 1
    assert json.loads(capsys.readouterr().out) == []
    assert raymc("down") == 0
    assert "No local clusters were running" in capsys.readouterr().out
