"""The environment of a pipeline: what is accepted, what is advised, what is sent."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ray_multicluster_scheduler.client import init_ray
from ray_multicluster_scheduler.client.init_ray import environment_hints, parse_environment
from ray_multicluster_scheduler.environment.compose import OVERLAY_HOOK
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv, PackageProblem


def parsed(env: object, cwd: Path) -> dict[str, Any]:
    return parse_environment(json.dumps(env), cwd=cwd)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (
            {"pip": ["pandas==1.5.3", "numpy>=1.20.0", "scikit-learn==1.2.0"]},
            [
                "numpy>=1.20.0 has no exact version",
                "pandas==1.5.3, scikit-learn==1.2.0 were built for numpy 1",
            ],
        ),
        ({"pip": ["pandas==1.5.*"]}, ["no exact version", "pandas==1.5.* was built for numpy 1"]),
        ({"pip": ["pandas<2"]}, ["no exact version", "pandas<2 was built for numpy 1"]),
        ({"pip": ["pandas==1.5.3", "numpy==1.26.4"]}, []),
        ({"pip": ["pandas==1.5.3", "numpy<2"]}, ["numpy<2 has no exact version"]),
        ({"pip": ["pandas==2.2.3", "scipy==1.13.0"]}, []),
        ({"pip": ["a", "b==1.*"]}, ["a, b==1.* have no exact version"]),
        ({"pip": {"packages": ["torch==2.0.0"]}}, ["torch==2.0.0 is large"]),
        ({"conda": {"dependencies": [{"pip": ["a"]}]}}, ["a has no exact version"]),
        (
            {"env_vars": {"CUDA_VISIBLE_DEVICES": "0"}},
            ["CUDA_VISIBLE_DEVICES is seen by tasks without GPUs only"],
        ),
        ({"env_vars": {"RAY_ADDRESS": "x"}}, ["RAY_ADDRESS will not take effect: a worker belongs"]),
        ({"env_vars": {"RAY_memory_usage_threshold": "1"}}, ["Ray reads its own settings when the node"]),
        ({"pip": ["pandas==2.2.3"], "env_vars": {"OMP_NUM_THREADS": "4"}, "conda": "x"}, []),
    ],
)
def test_advice_is_given_for_what_costs_time_later(env: dict[str, Any], words: list[str]) -> None:
    hints = list(environment_hints(env))
    assert len(hints) == len(words)
    assert all(word in hint for word, hint in zip(words, hints, strict=True))


def test_advice_is_logged_and_the_environment_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert parsed({"pip": ["pandas"]}, tmp_path) == {"pip": ["pandas"]}
    assert "pandas has no exact version" in caplog.text


@pytest.mark.parametrize(
    ("env", "sent"),
    [
        ({"pip": ["pandas==1.5.3"]}, {"pip": ["pandas==1.5.3"]}),
        ({"conda": "my_env"}, {"conda": "my_env"}),
        ({"conda": {"conda_env_name": "my_env", "conda_env_file": "environment.yml"}}, {"conda": "my_env"}),
        ({"conda": "environment.yml"}, {"conda": {"dependencies": ["python=3.10"]}}),
        ({"env_vars": {"OMP_NUM_THREADS": 4}}, {"env_vars": {"OMP_NUM_THREADS": "4"}}),
        ({"excludes": ["*.pyc"]}, {"excludes": ["*.pyc"]}),
    ],
)
def test_every_form_of_the_guide_becomes_what_ray_takes(
    env: dict[str, Any], sent: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "environment.yml").write_text("dependencies: [python=3.10]\n")
    assert parsed(env, tmp_path) == sent


def test_the_mixed_configuration_is_sent_as_an_overlay(tmp_path: Path) -> None:
    sent = parsed({"pip": ["pandas==1.5.3"], "conda": "ml-env", "working_dir": "."}, tmp_path)
    assert sent["conda"] == "ml-env"
    assert sent["working_dir"] == str(tmp_path)
    assert sent["worker_process_setup_hook"] == OVERLAY_HOOK
    assert Path(sent["py_modules"][0]).name == "raymc_overlay.py"


def test_broken_json_is_told_with_its_place() -> None:
    with pytest.raises(InvalidRuntimeEnv, match=r"not valid JSON: .* at line 2, column 1"):
        parse_environment('{"pip":\n')


def test_an_unknown_option_is_told_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidRuntimeEnv, match="unknown option 'envvars'; did you mean 'env_vars'"):
        parsed({"envvars": {}}, tmp_path)


def test_a_working_dir_above_the_limit_is_refused_with_what_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init_ray, "MAX_BYTES", 1000)
    (tmp_path / "large.bin").write_bytes(b"x" * 2000)
    with pytest.raises(PackageProblem, match=r"large\.bin"):
        parsed({"working_dir": str(tmp_path)}, tmp_path)
    assert parsed({"working_dir": str(tmp_path), "excludes": ["*.bin"]}, tmp_path)
