"""Another Ray than the cluster's cannot be had, and options that a Ray does not know are no options."""

from typing import Any

import pytest

from ray_multicluster_scheduler.environment.ray_needs import ray_needs, ray_objection
from ray_multicluster_scheduler.model.cluster import NO_NEEDS


def objection(env: dict[str, Any], version: str | None, cluster: dict[str, Any] | None = None) -> str | None:
    return ray_objection(ray_needs(env), ray_needs(cluster or {}), version)


@pytest.mark.parametrize(
    "env",
    [
        {"pip": ["ray[data]==2.52.1"]},
        {"pip": {"packages": ["six", "Ray == 2.52.1  # why"], "pip_check": False}},
        {"uv": ["ray>=2.61"]},
        {"conda": {"dependencies": ["python=3.10", {"pip": ["ray==2.52.1"]}]}},
        {"conda": {"dependencies": ["conda-forge::ray-default=2.52"]}},
        {"conda": {"dependencies": ["ray-core >=2.9,<2.60"]}},
    ],
)
def test_a_pin_that_the_clusters_ray_does_not_meet_is_an_objection(env: dict[str, Any]) -> None:
    assert str(objection(env, "2.60.0")).startswith("it runs Ray 2.60.0 and the environment asks for ")


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"pip": ["ray", "ray-something==1", "raytracing==9", "six==1.16"]},
        {"pip": ["ray[data]==2.60.0"]},
        {"pip": ["ray>=2.9"]},
        {"pip": ["ray==2.9; python_version < '3.9'", "ray @ https://example.com/ray-3.whl"]},
        {"pip": ["-r requirements-ray==2.txt"]},
        {"conda": {"dependencies": ["ray=2.60", "ray-tracing=1"]}},
        {"conda": {"dependencies": ["ray=2.*|3.*"]}},
        {"conda": "ray==2.9"},
    ],
)
def test_what_fits_or_is_for_the_node_to_judge_is_none(env: dict[str, Any]) -> None:
    assert objection(env, "2.60.0") is None


@pytest.mark.parametrize("version", [None, "", "nightly"])
def test_an_unknown_version_is_no_objection(version: str | None) -> None:
    assert objection({"pip": ["ray==2.9"], "uv": ["six"]}, version) is None


@pytest.mark.parametrize(
    ("option", "last_without", "first_with"),
    [("image_uri", "2.23.0", "2.24.0"), ("uv", "2.39.0", "2.40.0"), ("py_executable", "2.42.1", "2.43.0")],
)
def test_an_option_needs_a_ray_that_knows_it(option: str, last_without: str, first_with: str) -> None:
    assert f"which ignores {option}" in str(objection({option: ["x"]}, last_without))
    assert objection({option: ["x"]}, first_with) is None
    assert objection({option: ["x"]}, "3.0.0.dev0") is None


def test_the_clusters_own_environment_counts_unless_the_job_replaces_it() -> None:
    pinned, with_uv = {"pip": ["ray==2.9"]}, {"uv": ["six"]}
    assert objection({}, "2.60.0", pinned) is not None
    assert objection({"pip": ["ray"]}, "2.60.0", pinned) is not None
    assert objection({"pip": ["ray==2.60.0"]}, "2.60.0", pinned) is None
    assert objection({"conda": "mine"}, "2.60.0", pinned) is None
    assert objection({}, "2.9.3", with_uv) is not None
    assert objection({"pip": ["six"]}, "2.9.3", with_uv) is None


def test_most_environments_ask_nothing() -> None:
    assert not NO_NEEDS
    assert not ray_needs({"pip": ["pandas==2.2.3"], "env_vars": {"A": "b"}})


@pytest.mark.parametrize(
    "env",
    [
        {"pip": [f"ray=={'1' * 5000}"]},
        {"uv": [f"ray<{'1' * 5000}.2"]},
        {"conda": {"dependencies": [f"ray-core={'1' * 5000}"]}},
        {"pip": [f"ray; {'(' * 5000}"]},
    ],
)
def test_a_version_that_no_python_can_read_does_not_end_a_pass(env: dict[str, Any]) -> None:
    ray_objection(ray_needs(env), NO_NEEDS, "2.40.0")


def test_a_cluster_with_such_a_version_is_not_compared() -> None:
    assert ray_objection(ray_needs({"pip": ["ray==2.9.0"]}), NO_NEEDS, "1" * 5000) is None
