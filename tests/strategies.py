"""Random but plausible worlds for property tests: clusters in every condition, and a queue."""

from hypothesis import settings
from hypothesis import strategies as st
from tests.builders import NOW, a_queued, a_view

from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.resources import GIB

#: Without a deadline: how busy the machine is says nothing about the code.
THOROUGH = settings(max_examples=60, deadline=None)

CLUSTERS = ("a", "b", "c")
_TAGS = ("cpu", "stable", "gpu")

#: Quarters, so that sums are exact and a property can say "never more" without a tolerance.
_cpus = st.integers(1, 32).map(lambda quarters: quarters / 4)
_maybe_gpus = st.sampled_from((0.0, 0.0, 1.0, 2.0))


@st.composite
def resources(draw: st.DrawFn, *, most: int = 1) -> dict[str, float]:
    """Draw an amount of each resource, `most` times as much as a small job wants; zeros are left out."""
    drawn = {
        "CPU": draw(_cpus) * most,
        "GPU": draw(_maybe_gpus) * most,
        "memory": float(draw(st.sampled_from((0, 0, 1, 4)))) * GIB * most,
    }
    return {name: amount for name, amount in drawn.items() if amount} or {"CPU": 1.0}


@st.composite
def views(draw: st.DrawFn, name: str = "a") -> ClusterView:
    """Draw a cluster in any condition: ill, drained, old, full, of unknown size, growing."""
    reserved = draw(st.just({}) | resources())
    return a_view(
        name,
        draw(st.none() | resources(most=2)),
        spec={
            "prefer": draw(st.booleans()),
            "weight": draw(st.sampled_from((0.5, 1.0, 2.0))),
            "tags": tuple(draw(st.sets(st.sampled_from(_TAGS)))),
            "max_running_jobs": draw(st.sampled_from((1, 2, 50))),
            "max_resources": draw(st.none() | st.none() | resources(most=4)),
        },
        seen={
            "health": draw(st.sampled_from((*[Health.HEALTHY] * 4, Health.UNHEALTHY, Health.UNKNOWN))),
            "score": draw(st.sampled_from((0.0, 0.5, 1.0))),
            "used": draw(st.none() | st.just({}) | resources()),
            "ray_version": draw(st.sampled_from((None, "2.60.0", "2.9.3", "2.8.1", "nightly"))),
        },
        drained=draw(st.sampled_from((False, False, False, True))),
        reserved=reserved,
        unseen=draw(st.sampled_from(({}, reserved))),
        live_jobs=draw(st.integers(0, 2)),
        warm=frozenset(draw(st.sets(st.sampled_from(("env-1", "env-2"))))),
        allowance=draw(st.sampled_from((None, None, 0, 1, 3))),
    )


@st.composite
def queued(draw: st.DrawFn, seq: int = 1) -> QueuedJob:
    """Draw a waiting job; some have waited far too long."""
    names = st.sampled_from((*CLUSTERS, "gone"))
    return a_queued(
        f"job-{seq}",
        draw(resources()),
        seq=seq,
        user=draw(st.sampled_from(("ann", "bob", "eve"))),
        priority=draw(st.integers(0, 1)),
        waiting_since=NOW - draw(st.sampled_from((0, 1_000))),
        tags=tuple(draw(st.sets(st.sampled_from((*_TAGS, "mine"))))),
        preferred_cluster=draw(st.none() | names),
        avoid=tuple(draw(st.sets(names, max_size=2))),
        unfit=tuple((name, "pip and conda") for name in draw(st.sets(names, max_size=1))),
        env_key=draw(st.sampled_from(("", "env-1", "env-3"))),
    )


@st.composite
def worlds(draw: st.DrawFn, most_jobs: int = 9) -> tuple[list[QueuedJob], list[ClusterView]]:
    """Draw a queue and the clusters it waits for."""
    count = draw(st.integers(0, most_jobs))
    clusters = CLUSTERS[: draw(st.integers(1, len(CLUSTERS)))]
    return [draw(queued(seq=seq)) for seq in range(count)], [draw(views(name)) for name in clusters]
