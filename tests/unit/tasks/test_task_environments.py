"""What of a job's environment is its own, and so goes along to other clusters."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.environment.compose import OVERLAY_VAR, compose
from ray_multicluster_scheduler.environment.options import ATTEMPT_VAR, CLUSTER_VAR, SUBMISSION_ID_VAR
from ray_multicluster_scheduler.tasks.cluster_selector import program_env

IDENTITY = {CLUSTER_VAR: "centos", SUBMISSION_ID_VAR: "sub_1", ATTEMPT_VAR: "1"}
CENTOS: dict[str, Any] = {"conda": "ts", "env_vars": {"home_dir": "/home/zorro/", "A": "centos"}}
MAC: dict[str, Any] = {"conda": "k8s", "env_vars": {"home_dir": "/Users/zorro/", "A": "mac"}}
OWN: dict[str, Any] = {"working_dir": "gcs://_ray_pkg_1.zip", "env_vars": {"A": "own", "B": "own"}}


def test_what_the_cluster_says_is_not_the_programs_own_and_the_rest_is() -> None:
    assert program_env(compose(CENTOS, OWN, identity=IDENTITY), CENTOS) == OWN


def test_another_cluster_gets_its_own_environment_with_the_programs_own_over_it() -> None:
    own = program_env(compose(CENTOS, OWN, identity=IDENTITY), CENTOS)
    there = compose(MAC, own, identity={CLUSTER_VAR: "mac"})
    assert there["conda"] == "k8s"
    assert there["working_dir"] == "gcs://_ray_pkg_1.zip"
    assert there["env_vars"] == {"home_dir": "/Users/zorro/", "A": "own", "B": "own", CLUSTER_VAR: "mac"}


def test_packages_of_the_cluster_stay_there() -> None:
    cluster = {"pip": ["torch"]}
    composed = compose(cluster, {"pip": ["pandas"]}, identity=IDENTITY)
    assert program_env(composed, cluster) == {"pip": ["pandas"]}


def test_packages_that_were_laid_over_an_environment_are_laid_over_that_of_the_next_cluster() -> None:
    pip = {"packages": ["pandas"], "pip_install_options": ["--no-deps"]}
    for written in (["pandas"], pip):
        composed = compose(CENTOS, {"pip": written}, identity=IDENTITY, overlay=True)
        own = program_env(composed, CENTOS)
        assert own["pip"] == written
        there = compose(MAC, own, identity={CLUSTER_VAR: "mac"}, overlay=True)
        assert there["conda"] == "k8s"
        assert there["env_vars"][OVERLAY_VAR] == composed["env_vars"][OVERLAY_VAR]


def test_a_program_without_anything_of_its_own_takes_nothing_along() -> None:
    assert program_env(compose(CENTOS, {}, identity=IDENTITY), CENTOS) == {}
    assert program_env({}, {}) == {}


NAMES = st.text("ABCdef", min_size=1, max_size=3)
VARIABLES = st.dictionaries(NAMES, st.text("xyz", max_size=2))


@given(VARIABLES, VARIABLES)
def test_composing_again_at_home_gives_the_same(cluster: dict[str, str], own: dict[str, str]) -> None:
    at_home = {"env_vars": cluster}
    composed = compose(at_home, {"env_vars": own}, identity=IDENTITY)
    assert compose(at_home, program_env(composed, at_home), identity=IDENTITY) == composed
