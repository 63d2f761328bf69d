"""Each check objects for its own reason, in words and in numbers; and what can never fit is known at once."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from tests.support.builders import NOW, a_cluster, a_queued, a_view
from tests.support.strategies import THOROUGH, resources, worlds

from ray_multicluster_scheduler.core.placement.capacity import open_room, open_rooms
from ray_multicluster_scheduler.core.placement.checks import has_failed_everywhere, never_fits, objection
from ray_multicluster_scheduler.core.placement.plan import plan
from ray_multicluster_scheduler.core.placement.queue import queue_of
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.environment.ray_needs import ray_needs
from ray_multicluster_scheduler.environment.setup_failure import REMEMBERED_S, failed_setup, still_failing
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import Cause, ClusterView, QueuedJob, Refusal
from ray_multicluster_scheduler.model.resources import GIB, Resources


def refusal(view: ClusterView, job: QueuedJob | None = None) -> Refusal:
    found = objection(job or a_queued(), open_room(view), PlanRules())
    assert found is not None
    return found


def said(view: ClusterView, job: QueuedJob | None = None) -> tuple[Cause, str]:
    found = refusal(view, job)
    return found.cause, found.sentence


def accepts(view: ClusterView, job: QueuedJob | None = None) -> bool:
    return objection(job or a_queued(), open_room(view), PlanRules()) is None


def test_an_idle_healthy_cluster_has_no_objection() -> None:
    assert accepts(a_view())


def test_a_session_goes_where_ray_and_python_are_those_of_its_program() -> None:
    here = a_view(seen={"ray_version": "2.60.0", "python_version": "3.11.7"})
    assert accepts(here, a_queued(client_ray="2.60.0", client_python="3.11.2"))
    assert accepts(here, a_queued(client_python="3.11"))
    assert accepts(here, a_queued())
    older = a_queued(client_ray="2.9.3", client_python="3.9.1")
    sentence = "it runs Ray 2.60.0 and Python 3.11; this program has Ray 2.9.3 and Python 3.9"
    assert said(here, older) == (Cause.VERSION, sentence)
    assert accepts(a_view(seen={"ray_version": None, "python_version": None}), older)


def test_an_ill_cluster_says_what_is_wrong_with_it() -> None:
    ill = a_view(seen={"health": Health.UNHEALTHY, "problem": "connection refused"})
    assert said(ill) == (Cause.UNHEALTHY, "connection refused")


def test_a_cluster_that_was_never_looked_at_is_no_candidate() -> None:
    assert said(a_view(seen={"health": Health.UNKNOWN})) == (Cause.UNSEEN, "it has not been looked at yet")


def test_a_drained_cluster_says_why() -> None:
    assert said(a_view(drained=True, drain_reason="new disks")) == (Cause.DRAINED, "it is drained: new disks")
    assert said(a_view(drained=True)) == (Cause.DRAINED, "it is drained")


def test_a_ray_that_is_too_old_is_named_with_the_oldest_that_works() -> None:
    old = a_view(seen={"ray_version": "2.8.1"})
    assert said(old) == (Cause.VERSION, "it runs Ray 2.8.1; jobs need Ray 2.9 or newer")


@pytest.mark.parametrize("version", ["2.9.0", "2.10.0rc1", "3.0.0.dev0", "nightly", None])
def test_a_newer_or_unknown_version_is_no_objection(version: str | None) -> None:
    assert accepts(a_view(seen={"ray_version": version}))


def test_an_environment_that_cannot_be_composed_there_is_refused_there_only() -> None:
    job = a_queued(unfit=(("a", "pip cannot extend the named conda env 'ts'"),))
    assert said(a_view("a"), job) == (Cause.ENVIRONMENT, "pip cannot extend the named conda env 'ts'")
    assert accepts(a_view("b"), job)


def test_an_environment_that_does_not_go_with_the_clusters_ray_is_refused_there_only() -> None:
    job = a_queued(ray_needs=ray_needs({"pip": ["ray[data]==2.52.1"]}))
    cause, sentence = said(a_view(seen={"ray_version": "2.60.0"}), job)
    assert cause is Cause.ENVIRONMENT
    assert sentence.startswith("it runs Ray 2.60.0 and the environment asks for ray[data]==2.52.1")
    assert accepts(a_view(seen={"ray_version": "2.52.1"}), job)
    assert accepts(a_view(seen={"ray_version": None}), job)


def test_an_environment_that_failed_there_is_refused_there_until_it_may_be_better() -> None:
    key = "env-1"
    broken = a_view("a", failing={key: "No matching distribution found for nope"})
    assert said(broken, a_queued(env_key=key)) == (
        Cause.ENVIRONMENT,
        "No matching distribution found for nope",
    )
    assert accepts(broken, a_queued(env_key="env-2"))
    assert accepts(a_view("b"), a_queued(env_key=key))


def test_an_environment_has_failed_everywhere_when_no_cluster_is_left_that_might_take_it() -> None:
    job, rules = a_queued(env_key="env-1"), PlanRules()

    def verdict(*views: ClusterView) -> str | None:
        return has_failed_everywhere(job, open_rooms(views), rules)

    broken = a_view("a", failing={"env-1": "no such package"})
    small = a_view("b", {"CPU": 0.1})
    assert verdict(broken) == "'a': no such package"
    assert "'b': needs 1 CPU" in str(verdict(broken, small))
    assert verdict(broken, a_view("b")) is None
    assert verdict(broken, a_view("b", {"CPU": 0.1}, seen={"health": Health.UNHEALTHY})) is None
    assert verdict(broken, a_view("b", drained=True)) is None
    assert verdict(small) is None


@pytest.mark.parametrize(
    ("changes", "remembered"),
    [
        ({}, True),
        ({"now": NOW + REMEMBERED_S + 1}, False),
        ({"session_name": "another"}, False),
        ({"runtime_env": {"pip": ["a"]}}, False),
        ({"runtime_env": {"env_vars": {"A": "b"}}}, True),
    ],
)
def test_what_failed_is_remembered_for_a_while_of_the_same_cluster(
    changes: dict[str, Any], remembered: bool
) -> None:
    failed = failed_setup("no such package", a_cluster(), "session", now=NOW)
    seen = a_view(seen={"failed_setups": {"env-1": failed}, "session_name": "session"}).snapshot
    after = replace(seen, session_name=changes.get("session_name", "session"))
    spec = a_cluster(runtime_env=changes.get("runtime_env", {}))
    assert bool(still_failing(spec, after, now=changes.get("now", NOW))) is remembered


def test_an_unknown_size_is_its_own_reason_and_not_zero() -> None:
    cause, sentence = said(a_view("a", None))
    assert cause is Cause.UNKNOWN_RESOURCES
    assert "total of CPU is unknown" in sentence
    assert "max_resources" in sentence


def test_max_resources_tells_the_size_of_a_cluster_that_does_not() -> None:
    growing = a_view("a", None, spec={"max_resources": {"CPU": 2.0}})
    assert accepts(growing)
    assert refusal(growing, a_queued(claim={"CPU": 1.0, "GPU": 1.0})).cause is Cause.UNKNOWN_RESOURCES


def test_unknown_use_counts_only_what_is_ours() -> None:
    view = a_view("a", {"CPU": 2.0}, seen={"used": None}, reserved={"CPU": 1.0})
    assert accepts(view)
    assert refusal(view, a_queued(claim={"CPU": 2.0})).missing == {"CPU": 1.0}


def test_a_claim_larger_than_the_whole_cluster_is_not_told_to_wait() -> None:
    full = a_view("a", {"CPU": 4.0}, spec={"max_running_jobs": 1}, live_jobs=1)
    found = refusal(full, a_queued(claim={"CPU": 8.0, "GPU": 1.0}))
    assert found.cause is Cause.TOO_LARGE
    assert found.sentence == "needs 8 CPU, 1 GPU; the whole cluster has 4 CPU, 0 GPU"
    assert found.missing == {"CPU": 4.0, "GPU": 1.0}


def test_no_room_says_how_much_is_free_of_what_is_short() -> None:
    view = a_view("a", {"CPU": 4.0, "memory": 8.0 * GIB}, reserved={"CPU": 1.0, "memory": 7.0 * GIB})
    found = refusal(view, a_queued(claim={"CPU": 2.0, "memory": 4.0 * GIB}))
    assert found.cause is Cause.NO_ROOM
    assert found.sentence == "needs 4 GiB memory; free: 1 GiB memory of 8 GiB memory"
    assert found.missing == {"memory": 3.0 * GIB}


@pytest.mark.parametrize(
    ("used", "reserved"), [({"CPU": 3.0}, {"CPU": 1.0}), ({"CPU": 1.0}, {"CPU": 3.0}), (None, {"CPU": 3.0})]
)
def test_free_is_the_total_less_the_larger_of_use_and_claims(
    used: Resources | None, reserved: Resources
) -> None:
    view = a_view("a", {"CPU": 4.0}, seen={"used": used}, reserved=reserved)
    assert accepts(view)
    assert "free: 1 CPU of 4 CPU" in refusal(view, a_queued(claim={"CPU": 2.0})).sentence


def test_what_other_schedulers_claim_is_not_free_and_is_said_so() -> None:
    seen = {"used": {"CPU": 1.0}, "claimed_by_others": {"CPU": 2.0, "GPU": 1.0}}
    view = a_view("a", {"CPU": 4.0}, seen=seen, reserved={"CPU": 1.0})
    assert accepts(view)
    found = refusal(view, a_queued(claim={"CPU": 2.0}))
    assert found.cause is Cause.NO_ROOM
    assert found.sentence == "needs 2 CPU; free: 1 CPU of 4 CPU (2 CPU claimed by another scheduler)"


def test_an_overcommitted_cluster_has_nothing_free_rather_than_less() -> None:
    assert "free: 0 CPU of 4 CPU" in refusal(a_view("a", {"CPU": 4.0}, reserved={"CPU": 9.0})).sentence


def test_sums_of_fractions_do_not_miss_by_a_hair() -> None:
    view = a_view("a", {"CPU": 0.3}, reserved={"CPU": 0.1 + 0.1})
    assert accepts(view, a_queued(claim={"CPU": 0.1}))


def test_a_request_that_no_cluster_could_hold_names_the_largest() -> None:
    views = [a_view("centos", {"CPU": 4.0}), a_view("mac", {"CPU": 8.0})]
    assert never_fits({"CPU": 1000.0}, views) == "needs 1000 CPU; the largest cluster is 'mac' with 8 CPU"


def test_a_resource_in_other_letters_is_answered_with_the_right_ones() -> None:
    assert never_fits({"cpu": 1.0}, [a_view()]) == "needs 1 cpu; no cluster has any cpu; did you mean 'CPU'?"


def test_a_resource_that_no_cluster_has_is_named() -> None:
    assert never_fits({"CPU": 1.0, "TPU": 1.0}, [a_view()]) == "needs 1 TPU; no cluster has any TPU"


def test_each_resource_that_is_short_everywhere_has_its_own_largest() -> None:
    views = [a_view("a", {"CPU": 4.0, "GPU": 1.0}), a_view("b", {"CPU": 2.0, "GPU": 2.0})]
    assert never_fits({"CPU": 9.0, "GPU": 9.0}, views) == (
        "needs 9 CPU; the largest cluster is 'a' with 4 CPU; "
        "needs 9 GPU; the largest cluster is 'b' with 2 GPU"
    )


def test_what_only_fits_on_several_clusters_together_fits_nowhere() -> None:
    views = [a_view("a", {"CPU": 8.0}), a_view("b", {"CPU": 2.0, "GPU": 1.0})]
    assert never_fits({"CPU": 8.0, "GPU": 1.0}, views) == (
        "needs 8 CPU, 1 GPU on one cluster; 'a' has 8 CPU, 0 GPU; 'b' has 2 CPU, 1 GPU"
    )


@pytest.mark.parametrize(
    "maybe",
    [
        a_view("b", None),
        a_view("b", {"CPU": 1.0}, spec={"max_resources": {"CPU": 100.0}}),
        a_view("b", {"CPU": 100.0}, drained=True, reserved={"CPU": 100.0}),
        a_view("b", {"CPU": 100.0}, seen={"health": Health.UNHEALTHY}),
    ],
    ids=["unknown size", "can grow", "drained and full", "ill"],
)
def test_a_cluster_that_might_hold_it_one_day_is_no_refusal(maybe: ClusterView) -> None:
    assert never_fits({"CPU": 100.0}, [a_view("a"), maybe]) is None


def test_a_known_limit_refuses_even_where_the_rest_is_unknown() -> None:
    known = a_view("a", None, spec={"max_resources": {"CPU": 4.0}})
    assert never_fits({"CPU": 8.0, "GPU": 1.0}, [known]) == (
        "needs 8 CPU; the largest cluster is 'a' with 4 CPU"
    )


def test_without_clusters_nothing_fits() -> None:
    assert never_fits({"CPU": 1.0}, []) == "needs 1 CPU; no cluster is configured"


@THOROUGH
@given(worlds(most_jobs=0), resources(most=2))
def test_what_never_fits_is_never_placed(
    world: tuple[list[QueuedJob], list[ClusterView]], claim: Resources
) -> None:
    _, views = world
    lines = queue_of([a_queued(claim=claim)]).lines(now=NOW)
    decided = plan(lines, views, now=NOW, rules=PlanRules(), in_use={})
    if never_fits(claim, views):
        assert not decided.placements
    causes = {each.cause for waiting in decided.waiting for each in waiting.refusals.values()}
    assert causes != {Cause.TOO_LARGE} or never_fits(claim, views)
