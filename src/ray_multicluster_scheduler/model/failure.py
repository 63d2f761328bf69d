"""Why attempts fail: the kinds that retries and limits tell apart."""

from __future__ import annotations

from enum import Enum


class FailureKind(str, Enum):
    """Why an attempt ended badly. Only `USER` and `TIMED_OUT` are the program's own doing."""

    LOST = "LOST"  # evidence that the attempt is gone: head restarted, driver node dead, cluster dead
    ENVIRONMENT = "ENVIRONMENT"  # Ray could not set up the runtime_env this time: another cluster may
    NO_ENVIRONMENT = "NO_ENVIRONMENT"  # nor will it next time: no such package, conda environment, version
    UNSCHEDULABLE = "UNSCHEDULABLE"  # Ray found no room for the driver
    SUPERVISOR = "SUPERVISOR"  # Ray's own helper for the job died or never started
    REFUSED = "REFUSED"  # the cluster answered the submit with an error
    SILENT = "SILENT"  # no word for as long as the user allows; it may still run
    USER = "USER"  # the program ended with an exit code
    TIMED_OUT = "TIMED_OUT"  # it ran longer than its timeout_s
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"  # it ended, and its result was deleted before we read it
