"""What `explain` suggests is true: who follows it sees the job start."""

from typing import Any

from hypothesis import given
from tests.support.builders import NOW, a_head, a_queued, a_view
from tests.support.strategies import THOROUGH, worlds

from ray_multicluster_scheduler.core.placement.plan import plan
from ray_multicluster_scheduler.core.placement.queue import queue_of
from ray_multicluster_scheduler.core.placement.wait_reasons import Remedy, Suggestion, suggestions
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.resources import GIB

PASS: dict[str, Any] = {"now": NOW, "rules": PlanRules(), "in_use": {}}
LONG_AGO = NOW - 1_000


def remedies(job: QueuedJob, views: list[ClusterView], *others: QueuedJob) -> dict[Remedy, str]:
    return {each.remedy: each.sentence for each in suggestions(job, [job, *others], views, **PASS)}


def is_placed_after(suggestion: Suggestion, queue: list[QueuedJob], views: list[ClusterView]) -> bool:
    """Follow a suggestion and plan the whole queue again."""
    job, view = suggestion.job, suggestion.view
    queue = [job if other.submission_id == job.submission_id else other for other in queue]
    views = [view if view and view.spec.name == other.spec.name else other for other in views]
    return job.submission_id in {
        each.submission_id for each in plan(queue_of(queue).lines(now=NOW), views, **PASS).placements
    }


@THOROUGH
@given(worlds(most_jobs=6))
def test_a_job_that_follows_a_suggestion_is_placed(world: tuple[list[QueuedJob], list[ClusterView]]) -> None:
    queue, views = world
    waiting = {each.submission_id for each in plan(queue_of(queue).lines(now=NOW), views, **PASS).waiting}
    for job in queue:
        found = suggestions(job, queue, views, **PASS)
        assert not found or job.submission_id in waiting
        assert all(is_placed_after(suggestion, queue, views) for suggestion in found)


def test_nothing_is_suggested_to_a_job_that_starts_anyway() -> None:
    assert remedies(a_queued(), [a_view()]) == {}


def test_a_job_that_asks_for_too_much_learns_the_largest_amount_that_fits_and_where() -> None:
    views = [
        a_view("a", {"CPU": 4.0}, reserved={"CPU": 1.5}),
        a_view("b", {"CPU": 4.0}, reserved={"CPU": 3.0}),
    ]
    said = remedies(a_queued(claim={"CPU": 8.0}), views)
    assert said == {Remedy.ASK_FOR_LESS: "ask for 2 CPU instead of 8 CPU: 'a' has that free"}


def test_amounts_are_rounded_down_to_what_people_write() -> None:
    view = a_view("a", {"CPU": 4.0, "memory": 3.999 * GIB}, reserved={"CPU": 3.504})
    (found, *_) = suggestions(a_queued(claim={"CPU": 1.0, "memory": 4.0 * GIB}), [], [view], **PASS)
    assert found.job.claim == {"CPU": 0.49, "memory": 3.99 * GIB}


def test_no_suggestion_drops_a_resource_altogether() -> None:
    assert remedies(a_queued(claim={"CPU": 1.0, "GPU": 1.0}), [a_view()]) == {}


def test_a_drained_cluster_can_be_undrained() -> None:
    said = remedies(a_queued(), [a_view("a", drained=True)])
    assert said == {Remedy.UNDRAIN: "let 'a' take jobs again: `raymc undrain a`"}


def test_undraining_is_not_suggested_when_others_would_take_the_room() -> None:
    others = [a_queued(f"other-{n}", seq=n) for n in range(4)]
    assert Remedy.UNDRAIN not in remedies(a_queued(seq=9), [a_view("a", drained=True)], *others)


def test_an_ill_cluster_can_be_brought_back() -> None:
    said = remedies(a_queued(), [a_view("a", seen={"health": Health.UNHEALTHY})])
    assert said == {Remedy.RECOVER: "bring 'a' back: `raymc doctor` says what is wrong with it"}


def test_a_limit_can_be_raised_or_waited_for() -> None:
    view = a_view("a", spec={"max_running_jobs": 2}, live_jobs=2)
    assert remedies(a_queued(), [view]) == {
        Remedy.RAISE_LIMIT: "raise max_running_jobs of 'a' from 2 to 3",
        Remedy.WAIT: "wait for 1 of the 2 jobs on 'a' to end",
    }


def test_a_limit_that_nobody_set_can_be_set() -> None:
    seen = {"nodes": (a_head(0.5 * GIB),)}
    view = a_view("a", spec={"max_running_jobs": None}, seen=seen, live_jobs=3)
    assert remedies(a_queued(), [view])[Remedy.RAISE_LIMIT] == "set max_running_jobs of 'a' to 4"


def test_the_jobs_ahead_are_counted_in() -> None:
    view = a_view("a", {"CPU": 9.0}, spec={"max_running_jobs": 2}, live_jobs=2)
    said = remedies(a_queued(seq=9), [view], a_queued("first", seq=1), a_queued("second", seq=2))
    assert said[Remedy.RAISE_LIMIT] == "raise max_running_jobs of 'a' from 2 to 5"
    assert Remedy.WAIT not in said


def test_room_can_be_waited_for() -> None:
    view = a_view("a", {"CPU": 4.0}, reserved={"CPU": 3.0}, live_jobs=3)
    said = remedies(a_queued(claim={"CPU": 3.0}), [view])
    assert said[Remedy.WAIT] == "wait until 2 CPU more are free on 'a'; our jobs there: 3"


def test_a_throttled_cluster_can_be_waited_for() -> None:
    said = remedies(a_queued(), [a_view("a", starting=2, allowance=0)])
    assert said == {Remedy.WAIT: "wait until 'a' is given jobs again: 2 jobs are being started there"}


def test_a_job_behind_others_can_go_first() -> None:
    ahead = a_queued("ahead", {"CPU": 4.0}, seq=1, priority=5)
    said = remedies(a_queued(claim={"CPU": 4.0}, seq=2), [a_view("a")], ahead)
    assert said[Remedy.RAISE_PRIORITY] == "give it priority 6, so that it goes before all others that wait"


def test_room_kept_for_another_is_not_suggested() -> None:
    view = a_view("a", {"CPU": 4.0}, reserved={"CPU": 2.0})
    starving = a_queued("big", {"CPU": 3.0}, seq=1, waiting_since=LONG_AGO)
    assert Remedy.ASK_FOR_LESS not in remedies(a_queued(seq=2), [view], starving)


def test_a_job_for_which_room_is_kept_may_ask_for_less_and_use_it() -> None:
    view = a_view("a", {"CPU": 4.0}, reserved={"CPU": 2.0})
    said = remedies(a_queued(claim={"CPU": 4.0}, waiting_since=LONG_AGO), [view])
    assert said[Remedy.ASK_FOR_LESS] == "ask for 2 CPU instead of 4 CPU: 'a' has that free"


def test_a_job_that_is_not_in_the_queue_yet_is_asked_about_as_one_more() -> None:
    found = suggestions(a_queued(), [], [a_view("a", drained=True)], **PASS)
    assert [each.remedy for each in found] == [Remedy.UNDRAIN]
