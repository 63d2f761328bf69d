"""What follows the try to start an attempt: the table of the docstring, cell by cell."""

import pytest
from tests.support.builders import NOW, a_job

from ray_multicluster_scheduler.core.lifecycle.transitions import SendOutcome, SendResult, after_send
from ray_multicluster_scheduler.core.rules import RetryRules
from ray_multicluster_scheduler.model.states import JobState

#: The table of the docstring: result, what happened, a new attempt, sent before.
TABLE = [
    [cell.strip() for cell in line.strip(" |").split("|")]
    for line in (after_send.__doc__ or "").splitlines()
    if line.strip().startswith("| ") and "`SendResult`" not in line
]
JOB = a_job(state=JobState.PLACED, cluster="a", attempt=3, remote_id="job-1--r3", placed_at=NOW)


def follows(result: SendResult, *, is_new: bool) -> str:
    outcome = SendOutcome(result=result, detail="said so")
    move = after_send(JOB, outcome, is_new=is_new, rules=RetryRules(), now=NOW)
    assert move is None or "said so" in move.reason
    return "stays" if move is None else move.new.value


def test_the_table_has_every_result() -> None:
    assert [row[0] for row in TABLE] == [result.value for result in SendResult]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_each_result_moves_the_job_as_the_table_says(row: list[str]) -> None:
    name, _, new, before = row
    assert (follows(SendResult(name), is_new=True), follows(SendResult(name), is_new=False)) == (new, before)


def test_packages_that_cannot_be_read_are_tried_again_ever_more_rarely() -> None:
    outcome = SendOutcome(result=SendResult.NOT_PACKED, detail="a full disk")
    rules = RetryRules(delay_s=2.0, max_delay_s=5.0)
    pauses = [
        (after_send(a_job(state=JobState.PLACED, attempt=number), outcome, is_new=True, rules=rules, now=NOW))
        for number in (1, 2, 3)
    ]
    assert [move.changes["not_before"] - NOW for move in pauses if move] == [2.0, 4.0, 5.0]
