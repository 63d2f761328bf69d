"""Jobs learn the server's address where it can be right, and get a token with it."""

from typing import Any

import pytest
from tests.support.builders import a_cluster

from ray_multicluster_scheduler.environment.compose import with_address, with_token

HERE, PUBLIC = "http://127.0.0.1:8700", "https://raymc.example"
NEAR, FAR = {"dashboard": "http://127.0.0.1:8265"}, {"dashboard": "http://10.0.0.5:8265"}


@pytest.mark.parametrize(
    ("address", "where", "told"),
    [
        (HERE, NEAR, HERE),
        (HERE, FAR, None),
        (PUBLIC, NEAR, PUBLIC),
        (PUBLIC, FAR, PUBLIC),
        (None, NEAR, None),
    ],
)
def test_an_address_of_this_machine_is_told_on_this_machine_only(
    address: str | None, where: dict[str, str], told: str | None
) -> None:
    (spec,) = with_address([a_cluster(**where)], address)
    assert spec.runtime_env.get("env_vars", {}).get("RAY_MULTICLUSTER_ADDRESS") == told


def test_what_a_cluster_says_itself_goes_before_and_the_rest_stays() -> None:
    env = {"conda": "ts", "env_vars": {"RAY_MULTICLUSTER_ADDRESS": "http://other:1", "A": "b"}}
    (spec,) = with_address([a_cluster(runtime_env=env)], PUBLIC)
    assert spec.runtime_env == env


def test_a_host_that_only_begins_like_this_machine_is_another() -> None:
    (spec,) = with_address([a_cluster(**FAR)], "http://localhost.example:80")
    assert spec.runtime_env["env_vars"] == {"RAY_MULTICLUSTER_ADDRESS": "http://localhost.example:80"}


TOLD = {"RAY_MULTICLUSTER_ADDRESS": PUBLIC}


def sent(cluster: dict[str, str], job: dict[str, str]) -> Any:
    env = {"conda": "ts", "env_vars": {**cluster, **job}}
    return with_token(env, a_cluster(runtime_env={"env_vars": cluster}), "t")["env_vars"]


def test_where_the_address_is_told_the_token_goes_along() -> None:
    env = {"conda": "ts", "env_vars": {**TOLD, "A": "b"}}
    with_it = with_token(env, a_cluster(runtime_env={"env_vars": TOLD}), "t")
    assert with_it == {"conda": "ts", "env_vars": {**TOLD, "A": "b", "RAY_MULTICLUSTER_TOKEN": "t"}}
    assert env["env_vars"] == {**TOLD, "A": "b"}


@pytest.mark.parametrize(
    ("cluster", "job"),
    [
        ({}, {}),
        ({}, TOLD),
        (TOLD, {"RAY_MULTICLUSTER_ADDRESS": "http://other:1"}),
        (TOLD, {"RAY_MULTICLUSTER_TOKEN": "own"}),
        (TOLD, {"RAY_MULTICLUSTER_TOKEN": ""}),
        (TOLD, {"RAY_MULTICLUSTER_TOKEN_FILE": "/own"}),
        ({**TOLD, "RAY_MULTICLUSTER_TOKEN": "of the cluster"}, {}),
    ],
)
def test_another_server_gets_no_token_and_one_that_was_given_stays(
    cluster: dict[str, str], job: dict[str, str]
) -> None:
    assert sent(cluster, job) == {**cluster, **job}


def test_a_cluster_without_an_environment_tells_none() -> None:
    assert with_token({}, a_cluster(), "t") == {}
