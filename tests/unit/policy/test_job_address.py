"""Jobs learn the server's address where it can be right."""

import pytest
from tests.builders import a_cluster

from ray_multicluster_scheduler.policy.job_address import with_address

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
