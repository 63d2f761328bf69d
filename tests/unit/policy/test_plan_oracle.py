"""placing.py against plan.py, which defines what is right: the same choices, in the same order."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.builders import NOW, a_queued, a_view
from tests.strategies import THOROUGH, worlds

from ray_multicluster_scheduler.model.decision import ClusterView, Placement, QueuedJob
from ray_multicluster_scheduler.policy.backlog import Backlog
from ray_multicluster_scheduler.policy.placing import EXPLAINED_CLUSTERS, placements
from ray_multicluster_scheduler.policy.plan import PlanRules, plan

World = tuple[list[QueuedJob], list[ClusterView]]
RULES = PlanRules(starvation_after_s=300.0)
IN_USE = {"ann": {"CPU": 2.0}, "eve": {"GPU": 1.0}}


def lined_up(queue: Sequence[QueuedJob]) -> Backlog:
    backlog = Backlog()
    for job in queue:
        backlog.put(job)
    return backlog


def fast(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> tuple[Placement, ...]:
    return tuple(placements(lined_up(queue).lines(now=NOW), views, now=NOW, rules=RULES, in_use=IN_USE))


def slow(queue: Sequence[QueuedJob], views: Sequence[ClusterView]) -> tuple[Placement, ...]:
    return plan(queue, views, now=NOW, rules=RULES, in_use=IN_USE).placements


@THOROUGH
@given(world=worlds(most_jobs=30))
def test_every_placement_is_the_same_with_its_reasons(world: World) -> None:
    queue, views = world
    assert fast(queue, views) == slow(queue, views)


@THOROUGH
@given(world=worlds(most_jobs=30), order=st.randoms(use_true_random=False))
def test_the_order_in_which_jobs_came_into_memory_does_not_matter(world: World, order: object) -> None:
    queue, views = world
    shuffled = list(queue)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fast(shuffled, views) == slow(queue, views)


@THOROUGH
@given(world=worlds(most_jobs=30))
def test_with_many_clusters_the_choices_are_the_same_though_fewer_are_told(world: World) -> None:
    queue, views = world
    spare = [a_view(f"z{n}", {"CPU": 1.0}, drained=True) for n in range(EXPLAINED_CLUSTERS)]
    chosen = [(each.submission_id, each.cluster) for each in fast(queue, [*views, *spare])]
    assert chosen == [(each.submission_id, each.cluster) for each in slow(queue, [*views, *spare])]


def test_among_many_clusters_a_placement_tells_of_the_chosen_one() -> None:
    views = [a_view(f"c{n:02}", {"CPU": float(n)}) for n in range(1, 41)]
    (placed,) = fast([a_queued()], views)
    assert placed.cluster == "c40"
    assert set(placed.scores) == {"c40"}
    assert placed.sentence == "best score of 40 candidates"


def test_without_clusters_or_jobs_there_is_nothing_to_place() -> None:
    assert fast([a_queued()], []) == ()
    assert fast([], [a_view()]) == ()
