"""Kinds of failures, which retries and limits treat differently."""

from __future__ import annotations

from enum import Enum


class FailureKind(str, Enum):
    """Why an attempt failed. Only `USER` and `TIMED_OUT` are caused by the program itself."""

    LOST = "LOST"  # evidence that the attempt is gone: head restarted, driver node dead, cluster dead
    ENVIRONMENT = (
        "ENVIRONMENT"  # Ray could not set up the runtime_env; a retry or another cluster may succeed
    )
    NO_ENVIRONMENT = (
        "NO_ENVIRONMENT"  # a retry there would fail too: no such package, conda environment or version
    )
    UNSCHEDULABLE = "UNSCHEDULABLE"  # Ray found no room for the driver
    SUPERVISOR = "SUPERVISOR"  # Ray's own helper for the job died or never started
    REFUSED = "REFUSED"  # the cluster answered the submission with an error
    SILENT = "SILENT"  # no answer for as long as the user allows; it may still run
    USER = "USER"  # the program ended with an exit code
    TIMED_OUT = "TIMED_OUT"  # it ran longer than its timeout_s
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"  # it ended, and its result was deleted before we read it
