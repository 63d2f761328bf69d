"""Planning by example: who goes where, who waits, and what both are told."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import NOW, a_queued, a_view
from tests.support.strategies import THOROUGH

from ray_multicluster_scheduler.core.placement.plan import plan
from ray_multicluster_scheduler.core.placement.queue import queue_of
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import Cause, ClusterView, Holding, Plan, QueuedJob
from ray_multicluster_scheduler.model.resources import Resources, plus

LONG_AGO = NOW - 4_000
#: A job that has run for so long is expected to run as long again: soon enough to keep room for it.
A_WHILE_AGO = NOW - 600


def a_full(
    name: str, total: Resources, *held: Resources, since: float = A_WHILE_AGO, **changes: Any
) -> ClusterView:
    """A cluster with live jobs of ours that hold so much each."""
    reserved: dict[str, float] = {}
    for claim in held:
        reserved = plus(reserved, claim)
    holdings = tuple(Holding(claim, since) for claim in held)
    return a_view(name, total, reserved=reserved, live_jobs=len(held), holdings=holdings, **changes)


def planned(queue: list[QueuedJob], views: list[ClusterView], **changes: Any) -> Plan:
    return plan(
        queue_of(queue).lines(now=NOW), views, **{"now": NOW, "rules": PlanRules(), "in_use": {}, **changes}
    )


def where(decided: Plan) -> dict[str, str]:
    return {each.submission_id: each.cluster for each in decided.placements}


def jobs(count: int, claim: Resources, **changes: Any) -> list[QueuedJob]:
    return [a_queued(f"job-{seq}", claim, seq=seq, **changes) for seq in range(count)]


def test_two_clusters_of_four_and_two_cpus_share_one_cpu_jobs_in_that_ratio() -> None:
    clusters = {"big": 0, "small": 0}
    queue = jobs(40, {"CPU": 1.0})
    while queue:
        decided = planned(queue, [a_view("big", {"CPU": 4.0}), a_view("small", {"CPU": 2.0})])
        for name in where(decided).values():
            clusters[name] += 1
        queue = [job for job in queue if job.submission_id not in where(decided)]
    assert clusters["small"] in range(12, 15)


def test_the_first_jobs_already_alternate_between_the_clusters() -> None:
    decided = planned(jobs(3, {"CPU": 1.0}), [a_view("big", {"CPU": 4.0}), a_view("small", {"CPU": 2.0})])
    assert Counter(where(decided).values()) == {"big": 2, "small": 1}


def test_a_placement_says_what_spoke_for_and_against_each_cluster() -> None:
    views = [a_view("a"), a_view("b", spec={"prefer": True}), a_view("c", drained=True)]
    (placement,) = planned([a_queued()], views).placements
    assert placement.cluster == "b"
    assert placement.sentence == "first of 2 candidates, because of prefer: true"
    assert {name: score.prefer for name, score in placement.scores.items()} == {"a": False, "b": True}
    assert placement.refusals["c"].cause is Cause.DRAINED


@pytest.mark.parametrize("weight", [0.01, 1.0])
def test_prefer_goes_first_whatever_the_score_says(weight: float) -> None:
    preferred = a_view(
        "z", {"CPU": 4.0, "GPU": 2.0}, spec={"prefer": True, "weight": weight}, reserved={"CPU": 3.0}
    )
    better = a_view("a", {"CPU": 100.0}, spec={"weight": 50.0, "tags": ("etl",)}, warm=frozenset({"env"}))
    queue = jobs(2, {"CPU": 1.0}, tags=("etl",), env_key="env")
    assert where(planned(queue, [preferred, better])) == {"job-0": "z", "job-1": "a"}


def test_among_several_with_prefer_the_score_decides() -> None:
    views = [a_view("a", spec={"prefer": True}), a_view("b", spec={"prefer": True, "tags": ("etl",)})]
    assert where(planned([a_queued(tags=("etl",))], [*views, a_view("c")])) == {"job-1": "b"}


def test_the_cluster_that_a_job_asks_for_goes_before_one_with_prefer() -> None:
    views = [a_view("a", spec={"prefer": True}), a_view("b")]
    assert where(planned([a_queued(preferred_cluster="b")], views)) == {"job-1": "b"}


def test_a_job_that_claims_nothing_goes_wherever_one_more_job_may_run() -> None:
    full = a_view("a", {"CPU": 4.0}, reserved={"CPU": 5.0}, spec={"max_running_jobs": 2}, live_jobs=1)
    unknown = a_view("b", None, drained=True)
    decided = planned(jobs(2, {}), [full, unknown])
    assert where(decided) == {"job-0": "a"}
    assert decided.waiting[0].refusals["a"].cause is Cause.DRIVER_CAP
    assert where(planned([a_queued(claim={})], [replace(unknown, drained=False)])) == {"job-1": "b"}


def test_equal_clusters_are_taken_by_name() -> None:
    assert where(planned([a_queued()], [a_view("b"), a_view("a")])) == {"job-1": "a"}


def test_the_preferred_cluster_is_used_even_if_another_is_better() -> None:
    views = [a_view("a", {"CPU": 100.0}), a_view("b", {"CPU": 1.0})]
    (placement,) = planned([a_queued(preferred_cluster="b")], views).placements
    assert (placement.cluster, placement.sentence) == ("b", "it is the preferred cluster")


def test_a_full_preferred_cluster_is_not_waited_for() -> None:
    views = [a_view("a"), a_view("b", {"CPU": 1.0}, reserved={"CPU": 1.0})]
    (placement,) = planned([a_queued(preferred_cluster="b")], views).placements
    assert placement.cluster == "a"
    assert "the preferred cluster 'b' cannot take it (needs 1 CPU" in placement.sentence


def test_an_unknown_preferred_cluster_falls_back_and_says_so() -> None:
    (placement,) = planned([a_queued(preferred_cluster="nowhere")], [a_view("a")]).placements
    assert placement.cluster == "a"
    assert placement.sentence == "only candidate; the preferred cluster 'nowhere' is not configured"


def test_without_any_cluster_all_jobs_wait() -> None:
    decided = planned([a_queued()], [])
    assert decided.placements == ()
    assert decided.waiting[0].refusals == {}


def test_a_higher_priority_goes_first_however_young_and_whatever_its_user_holds() -> None:
    whole = {"CPU": 4.0}
    queue = [a_queued("old", whole, seq=1, user="bob"), a_queued("urgent", whole, seq=2, priority=1)]
    assert where(planned(queue, [a_view()], in_use={"ann": {"CPU": 3.0}})) == {"urgent": "a"}


def test_a_waiting_job_knows_its_place_in_the_queue() -> None:
    decided = planned(jobs(3, {"CPU": 4.0}), [a_view("a")])
    assert [(each.submission_id, each.position) for each in decided.waiting] == [("job-1", 1), ("job-2", 2)]


def test_an_avoided_cluster_is_refused_while_another_could_ever_hold_the_job() -> None:
    full = a_view("b", reserved={"CPU": 4.0})
    decided = planned([a_queued(avoid=("a",))], [a_view("a"), full])
    assert decided.waiting[0].refusals["a"].cause is Cause.AVOIDED


@pytest.mark.parametrize(
    "other",
    [
        a_view("b", {"CPU": 0.5}),
        a_view("b", drained=True),
        a_view("b", seen={"health": Health.UNHEALTHY}),
        a_view("b", None),
    ],
    ids=["too small", "drained", "ill", "of unknown size"],
)
def test_an_avoided_cluster_is_used_when_nothing_else_could_hold_the_job(other: ClusterView) -> None:
    assert where(planned([a_queued(avoid=("a",))], [a_view("a"), other])) == {"job-1": "a"}


SILENT = {"problem": "no answer within 5 s"}


@pytest.mark.parametrize("preferred", [None, "good", "silent"])
def test_a_cluster_whose_last_probe_failed_gets_no_job_that_another_can_take_now(
    preferred: str | None,
) -> None:
    silent = a_view("silent", {"CPU": 99.0}, spec={"prefer": True}, seen=SILENT)
    decided = planned([a_queued(preferred_cluster=preferred)], [a_view("good"), silent])
    assert where(decided) == {"job-1": "good"}
    assert decided.placements[0].refusals["silent"].sentence == (
        "its last probe failed (no answer within 5 s), and a cluster that answers could hold the job"
    )


def test_a_job_rather_waits_a_moment_for_a_cluster_that_answers_than_goes_to_a_silent_one() -> None:
    paced = a_view("good", allowance=0, starting=4, last_start_at=NOW - 60)
    (waiting,) = planned([a_queued(preferred_cluster="good")], [paced, a_view("silent", seen=SILENT)]).waiting
    causes = {name: refusal.cause for name, refusal in waiting.refusals.items()}
    assert causes == {"good": Cause.PACED, "silent": Cause.UNHEALTHY}


@pytest.mark.parametrize(
    "other",
    [
        a_view("b", {"CPU": 0.5}),
        a_view("b", drained=True),
        a_view("b", seen={"health": Health.UNHEALTHY}),
        a_view("b", None, seen=SILENT),
    ],
    ids=["too small", "drained", "ill", "silent too"],
)
def test_a_silent_cluster_is_used_when_none_that_answers_could_hold_the_job(other: ClusterView) -> None:
    assert where(planned([a_queued()], [a_view("a", seen=SILENT), other])) == {"job-1": "a"}


def test_a_silent_cluster_comes_before_one_that_failed_the_job() -> None:
    decided = planned([a_queued(avoid=("a",))], [a_view("a"), a_view("silent", seen=SILENT)])
    assert where(decided) == {"job-1": "silent"}


def test_jobs_that_differ_only_in_their_environment_are_told_apart() -> None:
    queue = [a_queued("one", seq=1), a_queued("two", seq=2, unfit=(("a", "pip and conda"),))]
    assert where(planned(queue, [a_view("a", {"CPU": 9.0}), a_view("b")])) == {"one": "a", "two": "b"}


def test_what_others_use_is_not_given_away_by_several_small_jobs() -> None:
    busy = a_view("a", {"CPU": 4.0}, seen={"used": {"CPU": 3.0}})
    assert len(planned(jobs(4, {"CPU": 1.0}), [busy]).placements) == 1


def test_a_claim_that_the_snapshot_cannot_show_yet_comes_on_top_of_what_it_shows() -> None:
    seen = {"used": {"CPU": 3.0}}
    started = a_view("a", {"CPU": 4.0}, seen=seen, reserved={"CPU": 1.0}, unseen={"CPU": 1.0})
    assert planned([a_queued()], [started]).placements == ()
    assert len(planned([a_queued()], [replace(started, unseen={})]).placements) == 1


def test_an_autoscaling_cluster_is_filled_up_to_what_it_can_grow_to() -> None:
    growing = a_view("a", {"CPU": 1.0}, spec={"max_resources": {"CPU": 3.0}})
    assert len(planned(jobs(5, {"CPU": 1.0}), [growing]).placements) == 3


def test_an_allowance_counts_down_within_the_pass() -> None:
    decided = planned(jobs(3, {"CPU": 1.0}), [a_view("a", starting=1, allowance=2)])
    assert len(decided.placements) == 2
    assert decided.waiting[0].refusals["a"].cause is Cause.PACED
    sentence = "3 jobs are being started there; more at once would slow all of them down"
    assert decided.waiting[0].refusals["a"].sentence == sentence


def test_driver_slots_count_down_within_the_pass() -> None:
    view = a_view("a", spec={"max_running_jobs": 2}, live_jobs=1)
    decided = planned(jobs(2, {"CPU": 1.0}), [view])
    assert len(decided.placements) == 1
    assert decided.waiting[0].refusals["a"].sentence == "our jobs there: 2 of at most 2 (max_running_jobs)"


def test_room_is_kept_for_a_job_that_has_waited_too_long() -> None:
    view = a_full("a", {"CPU": 4.0}, {"CPU": 1.0}, {"CPU": 1.0})
    big = a_queued("big", {"CPU": 4.0}, seq=1, waiting_since=LONG_AGO)
    decided = planned([big, a_queued("small", seq=2)], [view])
    first, second = decided.waiting
    assert first.reserved_on == "a"
    assert first.refusals["a"].cause is Cause.NO_ROOM
    assert second.refusals["a"].cause is Cause.RESERVED
    assert second.refusals["a"].sentence == (
        "needs 1 CPU; free: 2 CPU of 4 CPU, but kept for a job that has waited too long"
    )


def test_nobody_overtakes_the_oldest_job_whatever_its_user_holds() -> None:
    big = a_queued("big", {"CPU": 4.0}, seq=2, user="bob", waiting_since=LONG_AGO)
    queue = [a_queued("early", seq=1, user="ann"), big]
    in_use = {"bob": {"CPU": 3.0}}
    assert where(planned(queue, [a_view("a")], in_use=in_use)) == {"big": "a"}
    decided = planned(queue, [a_full("a", {"CPU": 4.0}, {"CPU": 1.0})], in_use=in_use)
    assert not decided.placements
    assert {each.submission_id: each.reserved_on for each in decided.waiting} == {"early": None, "big": "a"}


def test_among_jobs_of_one_size_the_turns_decide_however_old_one_is() -> None:
    old = a_queued("old", seq=1, user="bob", waiting_since=LONG_AGO)
    queue = [old, a_queued("young", seq=2, user="ann")]
    view = a_full("a", {"CPU": 4.0}, *[{"CPU": 1.0}] * 3)
    assert where(planned(queue, [view], in_use={"bob": {"CPU": 3.0}})) == {"young": "a"}


def test_nothing_is_kept_before_that_time() -> None:
    view = a_full("a", {"CPU": 4.0}, {"CPU": 2.0})
    big = a_queued("big", {"CPU": 4.0}, seq=1, waiting_since=NOW - 3_600)
    assert where(planned([big, a_queued("small", seq=2)], [view])) == {"small": "a"}


def test_nothing_is_kept_while_the_room_is_far_away() -> None:
    since = NOW - 2_100  # expected for as long again, which is too large a part of what the job has waited
    view = a_full("a", {"CPU": 4.0}, {"CPU": 2.0}, since=since)
    big = a_queued("big", {"CPU": 4.0}, seq=1, waiting_since=LONG_AGO)
    assert where(planned([big, a_queued("small", seq=2)], [view])) == {"small": "a"}
    older = replace(big, waiting_since=NOW - 4_300)
    assert planned([older, a_queued("small", seq=2)], [view]).waiting[0].reserved_on == "a"


def test_others_may_use_what_the_job_leaves_when_it_starts() -> None:
    view = a_full("a", {"CPU": 8.0}, {"CPU": 4.0}, {"CPU": 1.0})
    big = a_queued("big", {"CPU": 6.0}, seq=1, waiting_since=LONG_AGO)
    small = [a_queued(f"small-{seq}", seq=seq) for seq in (2, 3, 4)]
    decided = planned([big, *small], [view])
    assert where(decided) == {"small-2": "a"}
    assert [each.reserved_on for each in decided.waiting] == ["a", None, None]


def test_a_job_that_needs_nothing_of_the_kept_room_goes_past_it() -> None:
    view = a_full("a", {"CPU": 4.0, "disk": 1.0}, {"CPU": 2.0})
    big = a_queued("big", {"CPU": 4.0}, seq=1, waiting_since=LONG_AGO)
    queue = [big, a_queued("other", {"disk": 1.0}, seq=2), a_queued("small", seq=3)]
    assert where(planned(queue, [view])) == {"other": "a"}


def test_the_last_driver_slot_is_kept_too() -> None:
    view = a_full("a", {"CPU": 4.0, "disk": 1.0}, {"CPU": 2.0}, spec={"max_running_jobs": 2})
    big = a_queued("big", {"CPU": 4.0}, seq=1, waiting_since=LONG_AGO)
    queue = [big, a_queued("other", {"disk": 1.0}, seq=2), a_queued("small", seq=3)]
    other = planned(queue, [view]).waiting[1]
    assert (
        other.refusals["a"].sentence == "its last place for a job is kept for a job that has waited too long"
    )


def test_room_is_kept_where_it_is_expected_soonest() -> None:
    slow = a_full("a", {"CPU": 8.0}, {"CPU": 1.0}, since=NOW - 1_500)
    soon = a_full("b", {"CPU": 8.0}, {"CPU": 7.0}, since=NOW - 60)
    big = a_queued("big", {"CPU": 8.0}, seq=1, waiting_since=LONG_AGO)
    assert planned([big, a_queued("small", seq=2)], [slow, soon]).waiting[0].reserved_on == "b"


def test_a_cluster_full_of_jobs_that_have_overtaken_it_is_no_better_place() -> None:
    calm = a_full("a", {"CPU": 8.0}, {"CPU": 1.0}, since=NOW - 1_500)
    busy = a_full("b", {"CPU": 8.0}, {"CPU": 7.0}, since=NOW - 60)
    big = a_queued("big", {"CPU": 8.0}, seq=1, waiting_since=NOW - 2 * PlanRules().starvation_after_s)
    assert planned([big, a_queued("small", seq=2)], [calm, busy]).waiting[0].reserved_on == "a"


def test_one_job_at_a_time_has_room_kept() -> None:
    views = [a_full("a", {"CPU": 4.0}, {"CPU": 2.0}), a_full("b", {"CPU": 4.0}, {"CPU": 2.0})]
    wide = jobs(2, {"CPU": 4.0}, waiting_since=LONG_AGO)
    decided = planned([*wide, a_queued("small", seq=9)], views)
    assert [each.reserved_on for each in decided.waiting] == ["a", None]
    assert where(decided) == {"small": "b"}


def test_no_room_is_kept_on_an_empty_cluster_that_is_throttled() -> None:
    throttled = a_view("a", seen={"throttle": 0, "throttle_reason": "jobs die there"})
    big = a_queued("big", {"CPU": 4.0}, waiting_since=LONG_AGO)
    views = [throttled, a_full("b", {"CPU": 4.0}, {"CPU": 1.0})]
    decided = planned([big, a_queued("small", seq=2)], views)
    assert decided.waiting[0].refusals["a"].cause is Cause.THROTTLED
    assert decided.waiting[0].reserved_on == "b"


def test_no_room_is_kept_where_strangers_are_in_the_way() -> None:
    strangers = a_view("a", {"CPU": 4.0}, seen={"used": {"CPU": 2.0}})
    big = a_queued("big", {"CPU": 4.0}, seq=1, waiting_since=LONG_AGO)
    decided = planned([big, a_queued("small", seq=2)], [strangers])
    assert decided.waiting[0].reserved_on is None
    assert where(decided) == {"small": "a"}


def test_kept_room_is_open_to_a_job_of_higher_priority() -> None:
    view = a_full("a", {"CPU": 4.0}, {"CPU": 2.0})
    big = a_queued("big", {"CPU": 4.0}, seq=1, waiting_since=LONG_AGO)
    urgent = a_queued("urgent", seq=2, priority=1)
    decided = planned([big, urgent], [view])
    assert where(decided) == {"urgent": "a"}
    assert decided.waiting[0].reserved_on == "a"


def test_where_claims_differ_jobs_fill_up_one_cluster_and_leave_the_other_to_wide_ones() -> None:
    queue = [*jobs(3, {"CPU": 1.0}), a_queued("wide", {"CPU": 4.0}, seq=9)]
    assert where(planned(queue, [a_view("a"), a_view("b")])) == {
        "job-0": "a",
        "job-1": "a",
        "job-2": "a",
        "wide": "b",
    }


def test_a_live_job_with_another_claim_counts_as_well() -> None:
    views = [a_full("a", {"CPU": 4.0}, {"CPU": 2.0}), a_view("b")]
    assert where(planned([a_queued()], views)) == {"job-1": "a"}


def passes_until_the_big_one_starts(
    rules: PlanRules, *, most: int, clusters: int = 2, runs: int = 4
) -> int | None:
    """Run a busy system: small jobs run for so many passes, and endless new ones take their place.

    The large job's user holds something, those of the small ones hold nothing: each turn is theirs.
    """
    big = a_queued("big", {"CPU": 4.0}, seq=0, user="bob", waiting_since=NOW)
    names = [f"c{number}" for number in range(clusters)]
    running = [(name, -number % runs) for name in names for number in range(4)]
    queue = [big]
    for tick in range(most):
        running = [(name, since) for name, since in running if tick - since < runs]
        fresh = [f"small-{tick}-{n}" for n in range(4 * clusters)]
        queue += [a_queued(name, seq=100 * tick + n + 1, user=name) for n, name in enumerate(fresh)]
        views = [busy_view(each, [NOW + 60 * at for name, at in running if name == each]) for each in names]
        decided = planned(queue, views, now=NOW + 60 * tick, rules=rules, in_use={"bob": {"CPU": 1.0}})
        if "big" in where(decided):
            return tick
        running += [(name, tick) for name in where(decided).values()]
        queue = [big, *(job for job in queue[1:] if job.submission_id not in where(decided))][:20]
    return None


def busy_view(name: str, starts: list[float]) -> ClusterView:
    holdings = tuple(Holding({"CPU": 1.0}, since) for since in starts)
    reserved = {"CPU": float(len(starts))}
    return a_view(name, {"CPU": 4.0}, reserved=reserved, live_jobs=len(starts), holdings=holdings)


@settings(THOROUGH, max_examples=20)
@given(clusters=st.integers(1, 4), runs=st.integers(2, 15))
def test_a_large_job_is_not_overtaken_for_ever_whatever_its_user_holds(clusters: int, runs: int) -> None:
    rules = PlanRules(starvation_after_s=600.0)
    started = passes_until_the_big_one_starts(rules, most=150, clusters=clusters, runs=runs)
    assert started is not None


def test_without_kept_room_the_large_job_would_starve() -> None:
    never = PlanRules(starvation_after_s=float("inf"))
    assert passes_until_the_big_one_starts(never, most=150) is None


def a_paced(name: str = "a", *, starting: int = 1, since_s: float = 0.0, **changes: Any) -> ClusterView:
    """A cluster that is starting as many jobs as it may, the latest of them since so long."""
    return a_view(name, starting=starting, last_start_at=NOW - since_s, allowance=0, **changes)


def test_a_preferred_cluster_that_only_paces_its_starts_is_waited_for() -> None:
    decided = planned([a_queued(preferred_cluster="a")], [a_paced("a"), a_view("b")])
    assert not decided.placements
    assert {refusal.cause for refusal in decided.waiting[0].refusals.values()} == {Cause.PACED}


def test_a_preferred_cluster_without_room_is_not_waited_for_though_it_paces_too() -> None:
    full = a_paced("a", total={"CPU": 1.0}, reserved={"CPU": 1.0})
    assert where(planned([a_queued(preferred_cluster="a")], [full, a_view("b")])) == {"job-1": "b"}


def test_a_job_that_has_waited_too_long_does_not_wait_for_the_pace_of_its_preferred_cluster() -> None:
    job = a_queued(preferred_cluster="a", waiting_since=LONG_AGO)
    assert where(planned([job], [a_paced("a"), a_view("b")])) == {"job-1": "b"}


@pytest.mark.parametrize(
    ("since_s", "goes_to"), [(0.0, None), (4.5, None), (4.6, "b"), (60.0, "b"), (-1.0, "b")], ids=str
)
def test_a_preferred_cluster_is_not_waited_for_when_its_latest_start_is_overdue(
    since_s: float, goes_to: str | None
) -> None:
    views = [a_paced("a", since_s=since_s, seen={"start_s": 90.0}), a_view("b", seen={"start_s": 3.0})]
    assert where(planned([a_queued(preferred_cluster="a")], views)).get("job-1") == goes_to


def test_no_more_jobs_wait_for_a_preferred_cluster_than_it_starts_at_once() -> None:
    queue = jobs(5, {"CPU": 1.0}, preferred_cluster="a")
    views = [a_paced("a", starting=2), a_view("b", {"CPU": 9.0})]
    assert where(planned(queue, views)) == {"job-2": "b", "job-3": "b", "job-4": "b"}


def test_what_this_pass_gives_to_the_preferred_cluster_is_a_start_too() -> None:
    queue = jobs(4, {"CPU": 1.0}, preferred_cluster="a")
    assert where(planned(queue, [a_view("a", allowance=1), a_view("b")])) == {
        "job-0": "a",
        "job-2": "b",
        "job-3": "b",
    }


def test_nothing_is_placed_before_every_cluster_was_looked_at() -> None:
    unseen = a_view("a", total=None, seen={"health": Health.UNKNOWN, "awaited": True})
    (waiting,) = planned([a_queued(waiting_since=LONG_AGO)], [unseen, a_view("b")]).waiting
    assert {name: refusal.cause for name, refusal in waiting.refusals.items()} == {
        "a": Cause.UNSEEN,
        "b": Cause.UNSEEN,
    }
    assert "'a' is looked at first" in waiting.refusals["b"].sentence


def test_a_cluster_that_did_not_answer_the_first_look_is_waited_for_by_no_job() -> None:
    unseen = a_view("a", total=None, seen={"health": Health.UNKNOWN})
    queue = [a_queued("one", seq=1), a_queued("two", seq=2, preferred_cluster="a")]
    assert where(planned(queue, [unseen, a_view("b")])) == {"one": "b", "two": "b"}


def test_a_pass_on_another_thread_changes_nothing_in_this_one() -> None:
    """Rules are compared by Python code, so threads may switch there: here another pass runs meanwhile."""
    queue, views = jobs(2, {"CPU": 1.0}), [a_view("a", drained=True), a_view("b", {"CPU": 1.0})]
    others = [a_view(name, spec={"weight": 2.0}) for name in "abcde"]
    meanwhile: list[Plan] = []

    class Interrupted(PlanRules):
        def __eq__(self, other: object) -> bool:
            if not isinstance(other, Interrupted):
                return False
            meanwhile.append(planned(jobs(1, {"CPU": 2.0}), others))
            return True

        __hash__ = PlanRules.__hash__

    planned(queue, views, rules=Interrupted())
    assert where(planned(queue, views, rules=Interrupted())) == {"job-0": "b"}
    assert meanwhile


def test_a_job_that_costs_the_head_no_process_needs_no_driver_slot() -> None:
    view = a_view("a", spec={"max_running_jobs": 2}, live_jobs=2, slotless_jobs=1)
    needs = {"free-1": False, "driver-1": True, "driver-2": True, "free-2": False}
    queue = [a_queued(name, needs_driver_slot=slot, seq=n) for n, (name, slot) in enumerate(needs.items())]
    decided = planned(queue, [view])
    assert list(where(decided)) == ["free-1", "driver-1", "free-2"]
    assert decided.waiting[0].refusals["a"].cause is Cause.DRIVER_CAP
