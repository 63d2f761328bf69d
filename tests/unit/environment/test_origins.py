"""Whose each part of a composed environment is, held to what composing does."""

from typing import Any

import pytest
from hypothesis import given
from tests.unit.environment.test_compose import envs, patient

from ray_multicluster_scheduler.environment.compose import compose, normalise, origins
from ray_multicluster_scheduler.environment.options import (
    ADDRESS_VAR,
    ATTEMPT_VAR,
    CLUSTER_VAR,
    SUBMISSION_ID_VAR,
)
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv

IDENTITY = {CLUSTER_VAR: "a", SUBMISSION_ID_VAR: "job", ATTEMPT_VAR: "1"}


def canonical(env: dict[str, Any]) -> dict[str, Any]:
    return normalise(env, where="runtime_env")


def found(
    cluster: dict[str, Any], job: dict[str, Any], *, today: dict[str, Any] | None = None
) -> dict[str, str]:
    """Return the origins of what is composed; `today`: what the cluster says when somebody asks."""
    sent = compose(cluster, job, identity=IDENTITY, overlay=True)
    told = origins(sent, canonical(cluster if today is None else today), canonical(job))
    return {name: whose for name, whose in told.items() if name.removeprefix("env_vars.") not in IDENTITY}


@pytest.mark.parametrize(
    ("cluster", "job", "expected"),
    [
        ({"conda": "ts"}, {}, {"conda": "cluster"}),
        ({"conda": "ts"}, {"conda": "own"}, {"conda": "job"}),
        ({}, {"working_dir": "s3://b/code.zip"}, {"working_dir": "job"}),
        ({"pip": ["a"]}, {"pip": ["b"]}, {"pip": "both"}),
        ({"pip": ["a==1"]}, {"pip": ["a==2"]}, {"pip": "job"}),
        ({"pip": ["a"]}, {"pip": ["a"]}, {"pip": "both"}),
        ({"pip": ["a"]}, {"uv": ["b"]}, {"uv": "both"}),
        ({"pip": {"packages": ["a"], "pip_check": True}}, {"pip": ["a"]}, {"pip": "both"}),
        ({"pip": ["a"]}, {"conda": {"dependencies": ["x"]}}, {"conda": "both"}),
        ({"conda": {"dependencies": ["x"]}}, {"pip": ["a"]}, {"conda": "both"}),
        ({"conda": {"dependencies": ["x"]}}, {"conda": {"dependencies": ["x", "y"]}}, {"conda": "job"}),
        (
            {"config": {"setup_timeout_seconds": 5, "eager_install": True}},
            {"config": {"setup_timeout_seconds": 9}},
            {"config": "both"},
        ),
        (
            {"env_vars": {"A": "1", "B": "2"}},
            {"env_vars": {"B": "2", "C": "3"}},
            {"env_vars.A": "cluster", "env_vars.B": "job", "env_vars.C": "job"},
        ),
        ({"env_vars": {"PATH": "/a"}}, {"env_vars": {"PATH": "/b:$PATH"}}, {"env_vars.PATH": "both"}),
        ({"env_vars": {"PATH": "/a"}}, {"env_vars": {"PATH": "/b"}}, {"env_vars.PATH": "job"}),
    ],
)
def test_each_part_says_whose_it_is(
    cluster: dict[str, Any], job: dict[str, Any], expected: dict[str, str]
) -> None:
    assert found(cluster, job) == expected


def test_the_overlay_on_a_named_conda_environment_is_the_schedulers() -> None:
    assert found({"conda": "ts"}, {"pip": ["a"]}) == {
        "conda": "cluster",
        "worker_process_setup_hook": "scheduler",
        "env_vars.RAYMC_OVERLAY": "scheduler",
    }


def test_the_code_of_the_overlay_is_the_schedulers_unless_it_is_added_to_others() -> None:
    sent = compose({"conda": "ts"}, {"pip": ["a"]}, identity=IDENTITY, overlay=True)
    with_code = {**sent, "py_modules": ["gcs://_ray_pkg_0123456789abcdef.zip"]}

    assert origins(with_code, {"conda": "ts"}, {"pip": ["a"]})["py_modules"] == "scheduler"
    assert (
        origins(with_code, {"conda": "ts"}, {"pip": ["a"], "py_modules": ["s3://b/x.zip"]})["py_modules"]
        == "job"
    )


def test_the_address_of_the_server_is_the_schedulers_unless_somebody_sets_it() -> None:
    sent = {"env_vars": {ADDRESS_VAR: "http://server"}}
    name = f"env_vars.{ADDRESS_VAR}"

    assert origins(sent, {}, {})[name] == "scheduler"
    assert origins(sent, sent, {})[name] == "cluster"
    assert origins(sent, {}, sent)[name] == "job"


def test_what_a_cluster_no_longer_says_was_the_clusters() -> None:
    former = {"conda": "ts", "env_vars": {"home_dir": "/home/ann"}}

    assert found(former, {}, today={"conda": "new"}) == {"conda": "cluster", "env_vars.home_dir": "cluster"}
    assert found({"pip": ["a"]}, {"pip": ["b"]}, today={}) == {"pip": "both"}


def composed(cluster: dict[str, Any], job: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return compose(cluster, job, identity=IDENTITY, overlay=True)
    except InvalidRuntimeEnv:
        return None


@patient
@given(envs, envs)
def test_everything_that_is_sent_has_an_origin_and_nothing_else_has(
    cluster: dict[str, Any], job: dict[str, Any]
) -> None:
    if (sent := composed(cluster, job)) is None:
        return
    told = origins(sent, canonical(cluster), canonical(job))
    variables = {f"env_vars.{name}" for name in sent["env_vars"]}
    assert told.keys() == (sent.keys() - {"env_vars"}) | variables
    assert set(told.values()) <= {"cluster", "job", "both", "scheduler"}
    assert {name for name, whose in told.items() if whose == "scheduler"} >= {
        f"env_vars.{name}" for name in IDENTITY
    }


@patient
@given(envs, envs)
def test_an_origin_is_never_somebody_who_says_nothing_of_it(
    cluster: dict[str, Any], job: dict[str, Any]
) -> None:
    for one, other, whose in ((cluster, {}, "cluster"), ({}, job, "job")):
        if (sent := composed(one, other)) is not None:
            told = origins(sent, canonical(one), canonical(other))
            assert set(told.values()) <= {whose, "scheduler"}


@patient
@given(envs, envs, envs)
def test_what_the_job_sets_is_the_jobs_whatever_the_cluster_says_today(
    cluster: dict[str, Any], today: dict[str, Any], job: dict[str, Any]
) -> None:
    if (sent := composed(cluster, job)) is None:
        return
    told, own = origins(sent, canonical(today), canonical(job)), canonical(job)
    for option in own.keys() & told.keys():
        assert told[option] in {"job", "both"}, option
    for name in own.get("env_vars", {}):
        assert told[f"env_vars.{name}"] in {"job", "both"}
