"""Where an environment fits is found out once per pair of different ones, as if each cluster were asked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import a_cluster, a_spec
from tests.support.strategies import THOROUGH

from ray_multicluster_scheduler.core.placement import inputs
from ray_multicluster_scheduler.core.placement.inputs import Fits, unfit_clusters

ENVIRONMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"pip": ["numpy"]},
    {"uv": ["numpy"]},
    {"conda": "base"},
    {"conda": {"dependencies": ["python=3.11"]}},
    {"image_uri": "docker://image"},
    {"working_dir": "/plain/path"},
)
environments = st.sampled_from(ENVIRONMENTS)
homes = st.sampled_from(({}, {"env_vars": {"home_dir": "/home/ann"}}, {"env_vars": {"PATH": "/bin"}}))


@THOROUGH
@given(st.lists(st.tuples(environments, homes), min_size=1, max_size=6), st.lists(environments, max_size=4))
def test_the_answer_is_that_of_asking_every_cluster(
    clusters: list[tuple[dict[str, Any], dict[str, Any]]], asked: list[dict[str, Any]]
) -> None:
    specs = [a_cluster(f"c{n}", runtime_env={**env, **home}) for n, (env, home) in enumerate(clusters)]
    fits = Fits(specs)
    for env in (*asked, *asked):
        job = a_spec(runtime_env={**env, "env_vars": {"SHARD": "1"}})
        assert fits.unfit(job) == unfit_clusters(job, specs)


def test_many_clusters_and_jobs_that_differ_in_variables_are_one_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    composed, compose = list[str](), inputs.compose

    def counted(*arguments: Any, **options: Any) -> dict[str, Any]:
        composed.append("once")
        return compose(*arguments, **options)

    monkeypatch.setattr(inputs, "compose", counted)
    own = [{"pip": ["numpy"], "env_vars": {"home_dir": f"/home/u{n}"}} for n in range(100)]
    fits = Fits([a_cluster(f"c{n}", runtime_env=env) for n, env in enumerate(own)])
    for shard in range(100):
        assert fits.unfit(a_spec(runtime_env={"pip": ["emoji"], "env_vars": {"SHARD": str(shard)}})) == ()
    assert composed == ["once"]


def test_what_is_remembered_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MOST_SETUPS", 2)
    fits = Fits([a_cluster("a", runtime_env={"conda": {"dependencies": ["pip"]}})])
    for number in range(5):
        assert not fits.unfit(a_spec(runtime_env={"pip": [f"package-{number}"]}))
    assert len(fits._unfit) <= 2
