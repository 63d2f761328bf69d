"""The job state table. Only this module defines which changes of state are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class JobState(str, Enum):
    """The state of a job. From `PLACED` to `UNREACHABLE` it has an attempt on a cluster."""

    QUEUED = "QUEUED"  # waits in our queue, not in Ray's
    PLACED = "PLACED"  # a cluster is chosen and written down; the POST may or may not have been sent
    SUBMITTED = "SUBMITTED"  # Ray has accepted it and has not started it yet
    RUNNING = "RUNNING"  # its driver runs
    UNREACHABLE = "UNREACHABLE"  # its cluster does not answer; it may well be running
    LOST = "LOST"  # evidence that the attempt is gone; what happens next is being decided
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"


_S = JobState

#: For each state the possible next states, each with one sentence that says when.
TRANSITIONS: Mapping[JobState, Mapping[JobState, str]] = {
    _S.QUEUED: {
        _S.PLACED: "a cluster was chosen",
        _S.FAILED: "a dependency failed, or it waited longer than queue_timeout_s",
        _S.STOPPED: "the user stopped it before it was placed",
    },
    _S.PLACED: {
        _S.SUBMITTED: "Ray accepted it, or was found to have accepted it",
        _S.RUNNING: "the answer to its submit was lost, and it was found running",
        _S.SUCCEEDED: "the answer to its submit was lost, and it was found to have ended well",
        _S.QUEUED: "nothing was executed on the cluster, so it may be placed anew",
        _S.UNREACHABLE: "it was sent, and the cluster went silent before it answered",
        _S.LOST: "the cluster restarted before the attempt was seen there",
        _S.FAILED: "the cluster refused it for good",
        _S.STOPPED: "the user stopped it before it was sent",
    },
    _S.SUBMITTED: {
        _S.RUNNING: "its driver started",
        _S.SUCCEEDED: "it ended well between two looks",
        _S.FAILED: "it failed and no retry is left",
        _S.STOPPED: "it was stopped",
        _S.QUEUED: "it failed and is tried again",
        _S.UNREACHABLE: "no word from its cluster",
        _S.LOST: "evidence that the attempt is gone",
    },
    _S.RUNNING: {
        _S.SUCCEEDED: "its driver ended with exit code 0",
        _S.FAILED: "it failed and no retry is left",
        _S.STOPPED: "it was stopped",
        _S.QUEUED: "it failed and is tried again",
        _S.UNREACHABLE: "no word from its cluster",
        _S.LOST: "evidence that the attempt is gone",
    },
    _S.UNREACHABLE: {
        _S.SUBMITTED: "the cluster is back and has not started it yet",
        _S.RUNNING: "the cluster is back and it still runs",
        _S.SUCCEEDED: "the cluster is back and it ended well meanwhile",
        _S.FAILED: "the cluster is back and it failed meanwhile, or on_unreachable says fail",
        _S.STOPPED: "it was stopped",
        _S.QUEUED: "on_unreachable says fail over, or the cluster is back without it ever having started",
        _S.LOST: "evidence that the attempt is gone",
    },
    _S.LOST: {
        _S.QUEUED: "it is tried again, on another cluster where one fits",
        _S.FAILED: "no retry is left",
        _S.STOPPED: "the user wanted it stopped, and it is gone",
    },
    _S.SUCCEEDED: {},
    _S.FAILED: {},
    _S.STOPPED: {},
}

FINAL = frozenset(state for state, moves in TRANSITIONS.items() if not moves)
#: States in which an attempt holds a place (and its claim) on a cluster.
LIVE = frozenset({_S.PLACED, _S.SUBMITTED, _S.RUNNING, _S.UNREACHABLE, _S.LOST})

#: The status for clients of Ray's API. For UNREACHABLE and LOST the message says more.
RAY_STATUS: Mapping[JobState, str] = {
    _S.QUEUED: "PENDING",
    _S.PLACED: "PENDING",
    _S.SUBMITTED: "PENDING",
    _S.RUNNING: "RUNNING",
    _S.UNREACHABLE: "RUNNING",
    _S.LOST: "PENDING",
    _S.SUCCEEDED: "SUCCEEDED",
    _S.FAILED: "FAILED",
    _S.STOPPED: "STOPPED",
}


def may_move(old: JobState, new: JobState) -> bool:
    """Tell whether the table allows this change of state."""
    return new in TRANSITIONS[old]
