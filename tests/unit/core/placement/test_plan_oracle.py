"""The planner against a plain loop that asks every cluster about every job: the same choices and order."""

from collections.abc import Sequence
from random import Random

from benchmarks.naive import naive_plan
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, a_queued, a_view
from tests.support.strategies import THOROUGH, worlds

from ray_multicluster_scheduler.core.placement.plan import EXPLAINED_CLUSTERS, decisions, placements
from ray_multicluster_scheduler.core.placement.queue import queue_of
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import ClusterView, Placement, QueuedJob

World = tuple[list[QueuedJob], list[ClusterView]]
RULES = PlanRules(starvation_after_s=300.0)
IN_USE = {"ann": {"CPU": 2.0}, "eve": {"GPU": 1.0}}


def fast(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> tuple[Placement, ...]:
    lines = queue_of(queue).lines(now=NOW)
    return tuple(placements(lines, views, now=NOW, rules=RULES, in_use=IN_USE))


def choices(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> list[tuple[str, str | None]]:
    lines = queue_of(queue).lines(now=NOW)
    decided = decisions(lines, views, now=NOW, rules=RULES, in_use=IN_USE)
    return [(each.submission_id, each.cluster if isinstance(each, Placement) else None) for each in decided]


def naive(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> list[tuple[str, str | None]]:
    return naive_plan(queue, views, now=NOW, rules=RULES, in_use=IN_USE)


@THOROUGH
@given(world=worlds(most_jobs=30))
def test_the_planner_decides_as_the_plain_loop_does(world: World) -> None:
    queue, views = world
    assert choices(queue, views) == naive(queue, views)


@THOROUGH
@given(world=worlds(most_jobs=30), order=st.randoms(use_true_random=False))
def test_leaving_lines_that_are_full_changes_no_placement(world: World, order: Random) -> None:
    queue, views = world
    shuffled = list(queue)
    order.shuffle(shuffled)
    placed = [(each.submission_id, each.cluster) for each in fast(shuffled, views)]
    assert placed == [(job, cluster) for job, cluster in naive(queue, views) if cluster is not None]


@THOROUGH
@given(world=worlds(most_jobs=30))
def test_with_many_clusters_the_choices_are_the_same_though_fewer_are_told(world: World) -> None:
    queue, views = world
    spare = [a_view(f"z{n}", {"CPU": 1.0}, drained=True) for n in range(EXPLAINED_CLUSTERS)]
    chosen = [(each.submission_id, each.cluster) for each in fast(queue, [*views, *spare])]
    assert chosen == [pair for pair in naive(queue, [*views, *spare]) if pair[1] is not None]


def test_among_many_clusters_a_placement_tells_of_the_chosen_one() -> None:
    views = [a_view(f"c{n:02}", {"CPU": float(n)}) for n in range(1, 41)]
    (placed,) = fast([a_queued()], views)
    assert placed.cluster == "c40"
    assert set(placed.scores) == {"c40"}
    assert placed.sentence == "best score of 40 candidates"


def test_without_clusters_or_jobs_there_is_nothing_to_place() -> None:
    assert fast([a_queued()], []) == ()
    assert fast([], [a_view()]) == ()
