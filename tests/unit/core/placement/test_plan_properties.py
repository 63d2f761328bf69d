"""What holds for every plan, whatever the clusters and the queue are like."""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW
from tests.support.strategies import THOROUGH, worlds

from ray_multicluster_scheduler.core.placement.capacity import driver_limit
from ray_multicluster_scheduler.core.placement.checks import GOES_BY
from ray_multicluster_scheduler.core.placement.plan import PlanningPass, decisions, plan
from ray_multicluster_scheduler.core.placement.queue import queue_of
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.environment.ray_needs import ray_objection
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import Cause, ClusterView, Placement, Plan, QueuedJob, Waiting
from ray_multicluster_scheduler.model.resources import plus

World = tuple[list[QueuedJob], list[ClusterView]]
RULES = PlanRules()


def planned(queue: list[QueuedJob], views: list[ClusterView]) -> Plan:
    return plan(queue_of(queue).lines(now=NOW), views, now=NOW, rules=RULES, in_use={"ann": {"CPU": 1.0}})


def in_order(queue: list[QueuedJob], views: list[ClusterView]) -> list[Placement | Waiting]:
    return list(decisions(queue_of(queue).lines(now=NOW), views, now=NOW, rules=RULES, in_use={}))


@THOROUGH
@given(worlds())
def test_every_job_is_decided_exactly_once(world: World) -> None:
    queue, views = world
    decided = planned(queue, views)
    ids = [each.submission_id for each in (*decided.placements, *decided.waiting)]
    assert sorted(ids) == sorted(job.submission_id for job in queue)
    assert [each.position for each in decided.waiting] == list(range(1, len(decided.waiting) + 1))


@THOROUGH
@given(worlds())
def test_no_job_goes_to_a_cluster_that_is_ill_drained_too_old_or_unfit(world: World) -> None:
    queue, views = world
    jobs, clusters = {job.submission_id: job for job in queue}, {view.spec.name: view for view in views}
    for placement in planned(queue, views).placements:
        view = clusters[placement.cluster]
        assert view.snapshot.health is Health.HEALTHY
        assert not view.drained
        assert view.snapshot.ray_version != "2.8.1"
        job = jobs[placement.submission_id]
        assert placement.cluster not in dict(job.unfit)
        assert job.env_key not in view.failing
        assert ray_objection(job.ray_needs, view.ray_needs, view.snapshot.ray_version) is None


@THOROUGH
@given(worlds())
def test_never_more_is_placed_than_there_is(world: World) -> None:
    queue, views = world
    jobs = {job.submission_id: job for job in queue}
    placements = planned(queue, views).placements
    for view in views:
        here = [jobs[each.submission_id] for each in placements if each.cluster == view.spec.name]
        drivers = [job for job in here if job.needs_driver_slot]
        assert not drivers or view.live_jobs + len(drivers) <= driver_limit(view.spec, view.snapshot)
        assert view.allowance is None or len(here) <= view.allowance
        claimed: dict[str, float] = {}
        for job in here:
            claimed = plus(claimed, job.claim)
        for name, amount in claimed.items():
            total = (view.snapshot.total or {}).get(name, 0.0)
            most = max(total, (view.spec.max_resources or {}).get(name, 0.0))
            seen = (view.snapshot.used or {}).get(name, 0.0) + view.unseen.get(name, 0.0)
            assert amount <= most - seen
            assert amount <= most - view.reserved.get(name, 0.0)


@THOROUGH
@given(worlds())
def test_every_cluster_answers_every_job(world: World) -> None:
    queue, views = world
    names = {view.spec.name for view in views}
    decided = planned(queue, views)
    for waiting in decided.waiting:
        assert set(waiting.refusals) == names
        assert all(refusal.sentence for refusal in waiting.refusals.values())
    for placement in decided.placements:
        assert set(placement.refusals) | set(placement.scores) == names
        assert not set(placement.refusals) & set(placement.scores)


@THOROUGH
@given(worlds())
def test_the_preferred_cluster_is_taken_if_it_may_be_and_else_the_best(world: World) -> None:
    queue, views = world
    jobs = {job.submission_id: job for job in queue}
    for placement in planned(queue, views).placements:
        preferred = jobs[placement.submission_id].preferred_cluster
        scores, first = placement.scores, {view.spec.name for view in views if view.spec.prefer}
        best = min(scores, key=lambda name: (name not in first, -scores[name].total, name))
        assert placement.cluster == (preferred if preferred in scores else best)


@THOROUGH
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_decides_nothing(world: World, random: Random) -> None:
    queue, views = world
    turned = [replace(job, claim=dict(reversed(job.claim.items()))) for job in queue]
    shuffled = list(views)
    random.shuffle(turned)
    random.shuffle(shuffled)
    assert planned(turned, shuffled) == planned(queue, views)


@THOROUGH
@given(worlds())
def test_jobs_that_are_alike_are_decided_as_if_each_were_asked_about_alone(world: World) -> None:
    queue, views = world
    alike = [replace(job, claim=queue[job.seq % 2 - 1].claim, unfit=(), avoid=()) for job in queue]
    # A name that no cluster has makes each job's shape its own, so that no answer can be used twice.
    apart = [replace(job, unfit=((f"nowhere-{job.seq}", "no such cluster"),)) for job in alike]
    assert planned(apart, views) == planned(alike, views)


@THOROUGH
@given(worlds())
def test_room_is_kept_for_one_job_that_has_waited_too_long_and_only_those_refuse_for_it(world: World) -> None:
    queue, views = world
    jobs = {job.submission_id: job for job in queue}
    decided = in_order(queue, views)
    kept = [each for each in decided if isinstance(each, Waiting) and each.reserved_on is not None]
    assert len(kept) <= 1
    for waiting in kept:
        job = jobs[waiting.submission_id]
        assert NOW - job.waiting_since > RULES.starvation_after_s
        assert waiting.refusals[str(waiting.reserved_on)].cause in GOES_BY
    on = {each.reserved_on for each in kept}
    for each in decided:
        refusing = {name for name, refusal in each.refusals.items() if refusal.cause is Cause.RESERVED}
        assert refusing <= on


@THOROUGH
@given(worlds())
def test_what_others_take_leaves_the_kept_room_as_it_is(world: World) -> None:
    queue, views = world
    one_pass = PlanningPass(queue_of(queue).lines(now=NOW), views, now=NOW, rules=RULES, in_use={})
    for each in one_pass.turns(everyone=True):
        if isinstance(each, Placement):
            room = next(room for room in one_pass.rooms if room.name == each.cluster)
            placed = next(job for job in queue if job.submission_id == each.submission_id)
            kept = room.kept_for
            if kept is not None:
                assert all(room.spare[name] >= 0 for name in placed.claim)
                assert room.slots >= 1 or not (placed.needs_driver_slot and kept.needs_driver_slot)


@THOROUGH
@given(worlds())
def test_every_job_that_some_cluster_could_hold_is_placed_in_as_many_passes_as_there_are_jobs(
    world: World,
) -> None:
    queue, views = world
    idle = [
        replace(
            view,
            reserved={},
            unseen={},
            live_jobs=0,
            allowance=None,
            snapshot=replace(view.snapshot, used={}, throttle=None),
        )
        for view in views
    ]
    for _ in range(len(queue)):
        placed = {each.submission_id for each in planned(queue, idle).placements}
        queue = [job for job in queue if job.submission_id not in placed]
    lasting = {
        Cause.EXCLUDED,
        Cause.UNSEEN,
        Cause.UNHEALTHY,
        Cause.DRAINED,
        Cause.VERSION,
        Cause.ENVIRONMENT,
        Cause.TOO_LARGE,
    }
    lasting |= {Cause.UNKNOWN_RESOURCES, Cause.AVOIDED}
    for waiting in planned(queue, idle).waiting:
        causes = {refusal.cause for refusal in waiting.refusals.values()}
        assert causes <= lasting
        assert causes - {Cause.EXCLUDED} != {Cause.AVOIDED}
