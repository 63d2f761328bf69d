"""Random but plausible worlds for property tests: clusters in every condition, and a queue."""

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from tests.support.builders import NOW, a_head, a_queued, a_view

from ray_multicluster_scheduler.model.cluster import NO_NEEDS, Health, RayNeeds
from ray_multicluster_scheduler.model.decision import ClusterView, Holding, QueuedJob
from ray_multicluster_scheduler.model.resources import GIB, plus

#: Without a deadline: how busy the machine is says nothing about the code.
THOROUGH = settings(max_examples=int(os.environ.get("RAYMC_TEST_EXAMPLES", "60")), deadline=None)

CLUSTERS = ("a", "b", "c")
_TAGS = ("cpu", "stable", "gpu")
#: Environments, and what each asks of the cluster's Ray.
_NEEDS = {
    "": NO_NEEDS,
    "env-1": NO_NEEDS,
    "env-3": RayNeeds(pins=(("ray==2.60.0", "==2.60.0"),), own_installer=True),
}


def mostly(usual: Any, *rare: Any) -> st.SearchStrategy[Any]:
    """Draw the usual value most of the time: a world in which everything is broken tests little."""
    return st.integers(0, 7 + len(rare)).map(lambda n: (*[usual] * 8, *rare)[n])


#: Quarters, so that sums are exact and a property can say "never more" without a tolerance.
_cpus = st.integers(1, 16).map(lambda quarters: quarters / 4)
_gpus = mostly(0.0, 1.0, 2.0)


@st.composite
def resources(draw: st.DrawFn, *, most: int = 1) -> dict[str, float]:
    """Draw an amount of each resource, `most` times as much as a small job wants; zeros are left out."""
    drawn = {
        "CPU": draw(_cpus) * most,
        "GPU": draw(_gpus) * most,
        "memory": float(draw(mostly(0, 1, 4))) * GIB * most,
    }
    return {name: amount for name, amount in drawn.items() if amount} or {"CPU": 1.0}


#: Since shortly before now, or for a long time.
holdings = st.builds(Holding, resources(), st.sampled_from((NOW - 10, NOW - 400, NOW - 5_000)))


@st.composite
def views(draw: st.DrawFn, name: str = "a") -> ClusterView:
    """Draw a cluster in any condition: ill, drained, old, full, of unknown size, growing."""
    reserved = draw(st.just({}) | resources(most=2))
    return a_view(
        name,
        draw(mostly(plus(draw(resources(most=3)), {"GPU": 1.0, "memory": 4.0 * GIB}), None)),
        spec={
            "prefer": draw(st.booleans()),
            "weight": draw(st.sampled_from((0.5, 1.0, 2.0))),
            "tags": tuple(draw(st.sets(st.sampled_from(_TAGS)))),
            "max_running_jobs": draw(mostly(50, None, 1, 2, 3)),
            "max_resources": draw(mostly(None, draw(resources(most=4)))),
        },
        seen={
            "health": draw(mostly(Health.HEALTHY, Health.UNHEALTHY, Health.UNKNOWN)),
            "problem": draw(mostly(None, "no answer within 5 s")),
            "score": draw(st.sampled_from((0.0, 0.5, 1.0))),
            "nodes": draw(mostly((), None, (a_head(0.5 * GIB),))),
            "used": draw(mostly({}, None, reserved, draw(resources()))),
            "ray_version": draw(mostly("2.60.0", None, "2.9.3", "2.8.1", "nightly")),
            "throttle": draw(mostly(None, 0, 1)),
            "throttle_reason": "jobs die there quickly",
            "start_s": draw(mostly(None, 1.0, 500.0)),
            "awaited": draw(st.integers(0, 40)) == 0,
        },
        drained=draw(mostly(False, True)),
        reserved=reserved,
        unseen=draw(st.sampled_from(({}, reserved))),
        live_jobs=draw(st.integers(0, 2)),
        holdings=tuple(draw(st.lists(holdings, max_size=3))),
        warm=frozenset(draw(st.sets(st.sampled_from(("env-1", "env-2"))))),
        starting=draw(st.integers(0, 2)),
        last_start_at=draw(mostly(None, NOW - 2, NOW - 100, NOW + 1)),
        ray_needs=draw(mostly(NO_NEEDS, RayNeeds(options=("uv",)))),
        failing=draw(mostly({}, {"env-1": "no such package"}, {"": "no such conda environment"})),
        allowance=draw(mostly(None, 0, 1, 3)),
    )


@st.composite
def queued(draw: st.DrawFn, seq: int = 1) -> QueuedJob:
    """Draw a waiting job; some have waited far too long."""
    env_key = draw(st.sampled_from(tuple(_NEEDS)))
    return a_queued(
        f"job-{seq}",
        {} if draw(st.integers(0, 9)) == 0 else draw(resources()),
        seq=seq,
        user=draw(st.sampled_from(("ann", "bob", "eve"))),
        priority=draw(st.integers(0, 1)),
        waiting_since=NOW - draw(st.sampled_from((0, 1_000, 10_000))),
        tags=tuple(draw(st.sets(st.sampled_from((*_TAGS, "mine"))))),
        preferred_cluster=draw(mostly(None, *CLUSTERS, "gone")),
        only_cluster=draw(mostly(None, *CLUSTERS, "gone")),
        only_tags=draw(mostly((), ("gpu",), ("gpu", "gone"))),
        needs_driver_slot=draw(st.integers(0, 4)) > 0,
        avoid=draw(mostly((), ("a",), ("b", "gone"), ("a", "b", "c"))),
        unfit=draw(mostly((), (("a", "pip and conda"),))),
        env_key=env_key,
        ray_needs=_NEEDS[env_key],
    )


@st.composite
def worlds(draw: st.DrawFn, most_jobs: int = 12) -> tuple[list[QueuedJob], list[ClusterView]]:
    """Draw a queue and the clusters it waits for."""
    count = draw(st.integers(most_jobs // 2, most_jobs) | st.integers(0, most_jobs))
    clusters = CLUSTERS[: draw(st.integers(1, len(CLUSTERS)))]
    return [draw(queued(seq=seq)) for seq in range(count)], [draw(views(name)) for name in clusters]
