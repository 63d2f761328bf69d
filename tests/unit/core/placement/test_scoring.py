"""Each part of a score, and the formula that adds them up."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.builders import a_queued, a_view

from ray_multicluster_scheduler.core.placement.capacity import open_room
from ray_multicluster_scheduler.core.placement.inputs import env_key
from ray_multicluster_scheduler.core.placement.scoring import score
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.job import JobSpec

RULES = PlanRules(tags_bonus=0.5, warm_bonus=0.2, gpu_penalty=0.4)


def part(name: str, view: ClusterView, job: QueuedJob | None = None) -> float:
    return score(job or a_queued(), open_room(view), RULES).parts[name]


def test_the_free_share_is_what_stays_free_after_placement() -> None:
    assert part("fit", a_view("a", {"CPU": 4.0}, reserved={"CPU": 1.0})) == 0.5


def test_the_scarcest_of_the_claimed_resources_gives_the_free_share() -> None:
    view = a_view("a", {"CPU": 4.0, "GPU": 1.0, "disk": 1.0}, reserved={"disk": 1.0})
    assert part("fit", view, a_queued(claim={"CPU": 1.0, "GPU": 1.0})) == 0


def test_where_claims_differ_the_fit_is_what_is_then_in_use() -> None:
    room = open_room(a_view("a", {"CPU": 4.0}, reserved={"CPU": 2.0}))
    assert score(a_queued(), room, replace(RULES, best_fit=True)).parts["fit"] == 0.75


def test_weight_and_health_scale_the_free_share_only() -> None:
    view = a_view("a", spec={"weight": 2.0, "tags": ("x",)}, seen={"score": 0.5})
    assert score(a_queued(tags=("x",)), open_room(view), RULES).total == 0.75 * 2.0 * 0.5 + 0.5


def test_the_total_is_the_documented_formula() -> None:
    view = a_view(
        "a",
        {"CPU": 8.0, "GPU": 1.0},
        spec={"weight": 1.5, "prefer": True, "tags": ("x", "z")},
        seen={"score": 0.9},
        warm=frozenset({"env"}),
    )
    rated = score(a_queued(tags=("x", "y"), env_key="env"), open_room(view), RULES)
    p = rated.parts
    assert rated.total == p["fit"] * p["weight"] * p["health"] + p["tags"] + p["warm"] + p["gpu"]
    assert (p["fit"], p["weight"], p["health"]) == (7 / 8, 1.5, 0.9)
    assert (p["tags"], p["warm"], p["gpu"]) == (0.25, 0.2, -0.4)
    assert rated.prefer


@pytest.mark.parametrize(
    ("wanted", "bonus"),
    [((), 0.0), (("cpu",), 0.5), (("cpu", "fund"), 0.25), (("fund",), 0.0), (("cpu", "cpu"), 0.5)],
)
def test_tags_count_by_the_part_of_the_jobs_tags_that_the_cluster_has(
    wanted: tuple[str, ...], bonus: float
) -> None:
    assert part("tags", a_view("a", spec={"tags": ("cpu", "stable")}), a_queued(tags=wanted)) == bonus


def test_only_a_job_without_gpus_is_kept_away_from_gpus() -> None:
    with_gpus = a_view("a", {"CPU": 4.0, "GPU": 1.0})
    assert part("gpu", with_gpus) == -0.4
    assert part("gpu", with_gpus, a_queued(claim={"GPU": 1.0})) == 0
    assert part("gpu", a_view("a", {"CPU": 4.0, "GPU": 0.0})) == 0


def test_no_environment_is_warm_nowhere() -> None:
    assert part("warm", a_view("a", warm=frozenset({""})), a_queued(env_key="")) == 0
    assert part("warm", a_view("a", warm=frozenset({"e"})), a_queued(env_key="e")) == 0.2


def test_variables_need_no_setup_and_make_no_other_environment() -> None:
    def key(**runtime_env: Any) -> str:
        return env_key(JobSpec(entrypoint="true", user="ann", name=None, runtime_env=runtime_env))

    assert key(pip=["emoji"], env_vars={"SHARD": "1"}) == key(pip=["emoji"], env_vars={"SHARD": "2"}) != ""
    assert key(pip=["emoji"]) != key(pip=["pandas"])
    assert key(env_vars={"SHARD": "1"}) == key() == ""
