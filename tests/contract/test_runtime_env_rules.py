"""Our rules against Ray's own: it takes what we compose, and what it refuses we refuse first."""

import os
from typing import Any

import pytest
from ray._private.ray_constants import WORKER_PROCESS_SETUP_HOOK_ENV_VAR
from ray._private.utils import update_envs
from ray.runtime_env import RuntimeEnv

from ray_multicluster_scheduler.environment.compose import HOOK_VAR, compose, normalise
from ray_multicluster_scheduler.environment.options import OPTIONS
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv

CONDA = {"dependencies": ["python=3.10", {"pip": ["pandas"]}]}
CLUSTERS: list[dict[str, Any]] = [
    {},
    {"pip": ["numpy", "pandas"], "env_vars": ["PYTHONPATH=/opt/code", "N=1"]},
    {"pip": ["torch"], "conda": {"dependencies": ["cudatoolkit=11.7"]}, "config": {"eager_install": False}},
    {"uv": {"packages": ["numpy"], "uv_check": True}, "py_executable": "python3.11"},
    {"conda": "ts", "working_dir": "s3://bucket/code.zip"},
    {"image_uri": "rayproject/ray:2.60.0"},
]
JOBS: list[dict[str, Any]] = [
    {},
    {"pip": {"packages": ["pandas==1.5.3"], "pip_check": False, "pip_version": "==24.0"}},
    {"uv": ["pandas"], "excludes": ["*.pyc"]},
    {"conda": {"conda_env_name": "mine", "conda_env_file": "environment.yml"}},
    {"conda": CONDA, "pip": ["requests"], "py_modules": ["https://host/x-1-py3-none-any.whl"]},
    {"image_uri": "rayproject/ray:2.60.0", "config": {"setup_timeout_seconds": 60}},
    {"container": {"image": "x"}, "env_vars": {"A": 1}},
]


def test_the_variable_of_a_hook_is_that_of_ray() -> None:
    assert HOOK_VAR == WORKER_PROCESS_SETUP_HOOK_ENV_VAR


def test_ray_takes_every_environment_that_we_compose() -> None:
    taken = 0
    for cluster in CLUSTERS:
        for job in JOBS:
            try:
                composed = compose(cluster, job, identity={"RAY_MULTICLUSTER_ATTEMPT": "1"}, overlay=True)
            except InvalidRuntimeEnv:
                continue
            RuntimeEnv(**composed)
            taken += 1
    assert taken > len(CLUSTERS) * len(JOBS) // 2


@pytest.mark.parametrize(
    "env",
    [
        {"pip": ["a"], "conda": "ts", "worker_process_setup_hook": "mine.setup"},
        {"pip": ["a"], "uv": ["b"]},
        {"uv": ["a"], "conda": "ts"},
        {"image_uri": "x", "pip": ["a"]},
        {"image_uri": "x", "working_dir": "s3://bucket/code.zip"},
        {"container": {"image": "x"}, "conda": "ts"},
        {"pip": {"packages": ["a"], "other": 1}},
        {"pip": {"pip_check": True}},
        {"uv": {"packages": ["a"], "uv_pip_install_options": "x"}},
        {"pip": 3},
        {"conda": 3},
        {"env_vars": {"A": None}},
        {"env_vars": "A=1"},
        {"excludes": "x"},
        {"py_modules": "x"},
        {"working_dir": 3},
        {"working_dir": "s3://bucket/code"},
        {"working_dir": "hdfs://host/code.zip"},
        {"working_dir": "local://opt/app"},
        {"config": {"setup_timeout_seconds": 0}},
        {"config": {"eager_install": 1}},
        {"config": {"log_files": "x"}},
    ],
)
def test_what_ray_refuses_is_refused_before_it_is_sent(env: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        RuntimeEnv(**env)
    with pytest.raises(InvalidRuntimeEnv):
        normalise(env, where="runtime_env")


def test_every_option_of_this_ray_is_known() -> None:
    assert RuntimeEnv.known_fields <= OPTIONS.keys()


def test_on_a_node_only_a_reference_with_braces_may_be_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("WITH", "")
    monkeypatch.setenv("WITHOUT", "")
    update_envs({"WITH": "/a:${PYTHONPATH}", "WITHOUT": "/a:$PYTHONPATH"})
    assert (os.environ["WITH"], os.environ["WITHOUT"]) == ("/a:", "/a:$PYTHONPATH")
