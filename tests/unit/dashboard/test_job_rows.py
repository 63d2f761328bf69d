from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest
from tests.support.builders import a_job, a_spec

from ray_multicluster_scheduler.dashboard.pages.jobs_page import row_of, rows_of, same_jobs
from ray_multicluster_scheduler.model.states import JobState as S
from ray_multicluster_scheduler.service.make_views import show_job
from ray_multicluster_scheduler.service.views import JobPage, JobView


def a_view(submission_id: str = "job-1", **changes: Any) -> JobView:
    return show_job(a_job(submission_id, **changes), secrets=())


def test_a_job_without_a_name_is_shown_by_its_id() -> None:
    assert row_of(a_view("job-7"))["name"] == "job-7"


@pytest.mark.parametrize(
    ("name", "alone", "of_all"),
    [("etl", "etl [3]", "etl"), ("etl-3", "etl-3", "array_01cb"), (None, "array_01cb-3", "array_01cb")],
)
def test_jobs_of_an_array_are_told_apart_and_their_row_has_the_given_name(
    name: str | None, alone: str, of_all: str
) -> None:
    job = a_view("array_01cb-3", spec=a_spec(group="array_01cb", name=name))
    assert row_of(job)["name"] == alone
    assert row_of(job, {S.QUEUED: 8})["name"] == of_all


def test_a_group_keeps_the_name_that_it_was_given() -> None:
    job = a_view("job-1", spec=a_spec(group="sweep", name="train"))
    assert (row_of(job)["name"], row_of(job, {S.QUEUED: 2})["name"]) == ("train", "sweep")


def test_what_can_be_done_with_a_job_depends_on_its_state() -> None:
    able = {state: row_of(a_view(state=state)) for state in S}
    assert {state for state, row in able.items() if row["retry"]} == {S.FAILED, S.STOPPED}
    assert {state for state, row in able.items() if row["stop"]} == set(S) - {
        S.SUCCEEDED,
        S.FAILED,
        S.STOPPED,
    }


def test_a_row_for_several_jobs_counts_them_by_state_in_the_order_of_a_job_s_life() -> None:
    counts = {S.FAILED: 2, S.QUEUED: 3, S.SUCCEEDED: 4, S.LOST: 0}
    page = JobPage(jobs=(a_view("a"), a_view("b")), next_cursor="5", members={"a": counts})
    first, second = rows_of(page).rows
    assert list(first["members"].items()) == [("QUEUED", 3), ("SUCCEEDED", 4), ("FAILED", 2)]
    assert (first["stop"], first["retry"]) == (3, 2)
    assert second["members"] is None


def test_a_job_that_never_started_has_waited_until_it_ended() -> None:
    row = row_of(a_view(state=S.STOPPED, ended_at=9.0))
    assert (row["waited"], row["started"]) == (9.0, None)


@pytest.mark.parametrize(
    ("changes", "message", "code"),
    [
        ({"state": S.SUCCEEDED, "reason": "its driver ended with exit code 0", "exit_code": 0}, "", None),
        ({"state": S.RUNNING, "reason": "its driver runs on cluster 'a'"}, "", None),
        ({"state": S.QUEUED, "reason": "accepted"}, "", None),
        ({"state": S.FAILED, "reason": "its program ended with exit code 127", "exit_code": 127}, ANY, 127),
        ({"state": S.FAILED, "reason": "its cluster is gone"}, "its cluster is gone", None),
        ({"state": S.STOPPED, "reason": "stopped by the user"}, "stopped by the user", None),
    ],
)
def test_a_row_says_why_and_nothing_that_its_state_says(
    changes: dict[str, Any], message: Any, code: int | None
) -> None:
    row = row_of(a_view(**changes))
    assert (row["message"], row["exit"]) == (message, code)
    assert row["about"] == changes["reason"]


def test_a_row_of_the_queue_says_what_the_job_waits_for() -> None:
    row = row_of(show_job(a_job(), secrets=(), waits=("NO_ROOM", "east: needs 4 CPU; free: 0")))
    assert (row["reason"], row["message"]) == ("NO_ROOM", "east: needs 4 CPU; free: 0")


def test_a_later_page_keeps_its_jobs_and_their_order_but_not_deleted_ones() -> None:
    former = [row_of(a_view(name)) for name in ("c", "b", "a")]
    now = {"a": a_view("a", state=S.FAILED), "c": a_view("c")}
    assert [(row["id"], row["state"]) for row in same_jobs(former, now)] == [("c", "QUEUED"), ("a", "FAILED")]
