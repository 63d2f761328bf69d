"""Why the queue waits, in numbers."""

from dataclasses import replace
from typing import Any

from tests.support.builders import NOW, a_queued, a_view

from ray_multicluster_scheduler.cli.commands.jobs import IN_SHORT
from ray_multicluster_scheduler.core.placement.queue import line_name, queue_of
from ray_multicluster_scheduler.core.placement.wait_reasons import Kind, Queue, in_numbers, waits
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import (
    GOES_BY_FIRST,
    REASONS,
    Cause,
    ClusterView,
    Holding,
    QueuedJob,
    Wait,
)

FULL = {"used": {"CPU": 4.0}}


def a_kind(jobs: int = 1, *, age_s: float = 5.0, **sample: Any) -> Kind:
    return Kind(sample=a_queued(**{"waiting_since": NOW - age_s} | sample), jobs=jobs)


def asked(
    *kinds: Kind, views: list[ClusterView], needing: list[QueuedJob] | None = None, **later: Any
) -> dict[str, Wait]:
    queue = Queue(kinds=kinds, needing=needing or [], later=later.get("later", []))
    found = waits(queue, views, now=NOW, rules=PlanRules(), in_use={})
    assert {wait.reason for wait in found} <= set(REASONS)
    return {wait.reason: wait for wait in found}


def test_every_cause_has_its_rank() -> None:
    assert sorted(GOES_BY_FIRST) == sorted(Cause)


def test_jobs_of_all_kinds_add_up_by_reason_with_the_oldest_of_them() -> None:
    full = a_view("a", seen=FULL)
    found = asked(
        a_kind(3, age_s=5, submission_id="x"),
        a_kind(4, age_s=50, submission_id="y", user="bo"),
        a_kind(2, age_s=500, submission_id="z", claim={"CPU": 99.0}),
        views=[full],
    )
    assert {reason: (wait.jobs, NOW - wait.oldest) for reason, wait in found.items()} == {
        "NO_ROOM": (7, 50),
        "TOO_LARGE": (2, 500),
    }


def test_a_job_counts_for_the_reason_that_goes_by_first() -> None:
    views = [
        a_view("sick", seen={"health": Health.UNHEALTHY}),
        a_view("full", seen=FULL),
        a_view("small", {"CPU": 0.5}),
    ]
    assert list(asked(a_kind(), views=views)) == ["NO_ROOM"]
    assert list(asked(a_kind(), views=[views[0], views[2]])) == ["UNHEALTHY"]
    assert list(asked(a_kind(), views=[])) == ["NO_CLUSTER"]


def test_jobs_that_wait_for_others_or_for_a_time_are_told_apart() -> None:
    found = asked(
        a_kind(),
        views=[a_view("a")],
        needing=[a_queued("n1", waiting_since=NOW - 9), a_queued("n2", waiting_since=NOW - 3)],
        later=[a_queued("l")],
    )
    assert {reason: wait.jobs for reason, wait in found.items()} == {
        "TURN": 1,
        "DEPENDENCIES": 2,
        "RETRY_DELAY": 1,
    }
    assert found["DEPENDENCIES"].oldest == NOW - 9


def test_room_that_is_kept_for_a_starving_job_is_the_reason_of_those_behind_it() -> None:
    starving = a_kind(age_s=10_000, submission_id="old", claim={"CPU": 4.0}, seq=1)
    behind = a_kind(7, submission_id="new", claim={"CPU": 1.0}, seq=2)
    view = a_view("a", {"CPU": 4.0}, seen={"used": {"CPU": 2.0}}, reserved={"CPU": 2.0})
    view = replace(view, live_jobs=2, holdings=(Holding({"CPU": 1.0}, NOW - 60),) * 2)
    found = asked(starving, behind, views=[view])
    assert {reason: wait.jobs for reason, wait in found.items()} == {"NO_ROOM": 1, "RESERVED": 7}


def test_every_reason_has_a_word_for_a_narrow_table() -> None:
    assert IN_SHORT.keys() == set(REASONS)


def test_the_sentence_of_a_line_names_the_clusters_whose_reason_ends_first() -> None:
    small = [a_view(name, {"CPU": 0.5}) for name in ("s1", "s2", "s3")]
    kind = a_kind()
    (wait,) = asked(kind, views=[*small, a_view("full", seen=FULL)]).values()
    (sentence,) = wait.lines.values()
    assert list(wait.lines) == [line_name(kind.sample)]
    assert sentence.startswith("full: needs 1 CPU; free: 0 CPU of 4 CPU; s1: ")
    assert sentence.endswith("; 1 more cannot take it either")


def test_a_cluster_on_which_a_job_may_not_run_is_no_reason() -> None:
    kind = a_kind(only_cluster="full")
    (wait,) = asked(kind, views=[a_view("other"), a_view("full", seen=FULL)]).values()
    assert list(wait.lines.values()) == ["its only cluster full: needs 1 CPU; free: 0 CPU of 4 CPU"]


def test_a_line_whose_first_job_has_left_is_judged_by_the_one_that_is_first_now() -> None:
    queue = queue_of(
        [a_queued("gone", seq=1, waiting_since=NOW - 9), a_queued("here", seq=2, waiting_since=NOW - 5)]
    )
    queue.remove(["gone"])
    (kind,) = in_numbers(queue, now=NOW).kinds
    assert (kind.sample.submission_id, kind.sample.seq, kind.sample.waiting_since) == ("here", 2, NOW - 5)
    assert kind.jobs == 1
