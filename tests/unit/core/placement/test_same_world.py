"""What the leader publishes is all that it decides by: whoever reads it decides alike."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, a_job, a_spec
from tests.support.strategies import CLUSTERS, THOROUGH, resources, worlds

from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.placement.inputs import World, cluster_views
from ray_multicluster_scheduler.core.placement.plan import placements, plan
from ray_multicluster_scheduler.core.placement.queue import queue_of
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store.schema.rows import snapshot_from, to_json

RULES = PlanRules()


def published(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The snapshot as another process reads it from the store."""
    return snapshot_from(json.loads(to_json(snapshot)))


@st.composite
def live_jobs(draw: st.DrawFn) -> list[Job]:
    states = (JobState.PLACED, JobState.SUBMITTED, JobState.RUNNING)
    return [
        a_job(
            f"live-{number}",
            spec=a_spec(requirements=draw(resources())),
            state=draw(st.sampled_from(states)),
            cluster=draw(st.sampled_from(CLUSTERS)),
            placed_at=NOW + draw(st.sampled_from((-1.0, 1.0))),
        )
        for number in range(draw(st.integers(0, 4)))
    ]


@THOROUGH
@given(worlds(), live_jobs(), st.lists(st.sampled_from((None, 0, 1, 2, 5)), min_size=3, max_size=3))
def test_explain_places_exactly_those_jobs_that_the_leader_places(
    world: tuple[list[QueuedJob], list[ClusterView]], live: list[Job], limits: list[int | None]
) -> None:
    waiting, views = world
    snapshots = {
        view.spec.name: replace(view.snapshot, start_limit=limit, warm=tuple(sorted(view.warm)))
        for view, limit in zip(views, limits, strict=False)
    }
    specs, held = [view.spec for view in views], LiveJobs(live)
    lines = queue_of(waiting).lines(now=NOW)
    leader = placements(
        lines,
        cluster_views(World(specs=specs, snapshots=snapshots, live=held, now=NOW)),
        now=NOW,
        rules=RULES,
        in_use=held.held_by_user(),
    )
    read = {name: published(snapshot) for name, snapshot in snapshots.items()}
    explained = plan(
        lines,
        cluster_views(World(specs=specs, snapshots=read, live=held, now=NOW)),
        now=NOW,
        rules=RULES,
        in_use=held.held_by_user(),
    )
    assert tuple(leader) == explained.placements
