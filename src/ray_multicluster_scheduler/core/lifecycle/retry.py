"""Retries of jobs after a failed attempt: by kind of failure, with separate budgets."""

from __future__ import annotations

from dataclasses import dataclass

from ray_multicluster_scheduler.core.rules import RetryRules
from ray_multicluster_scheduler.model.execution import FailureKind
from ray_multicluster_scheduler.model.job import Job

_USERS_OWN = frozenset({FailureKind.USER, FailureKind.TIMED_OUT})
#: The cluster itself is the cause, so another one is preferred for the retry. (Not for LOST: a lost cluster
#: is unhealthy, and once it is back it is as good as any other.)
_ELSEWHERE = frozenset(
    {
        FailureKind.ENVIRONMENT,
        FailureKind.NO_ENVIRONMENT,
        FailureKind.UNSCHEDULABLE,
        FailureKind.REFUSED,
        FailureKind.SILENT,
    }
)
#: Whose budget a retry is taken from, where it is the job's own.
_OF_THE_JOB = "max_retries"
_NOWHERE_ELSE = "not tried again, because no other cluster can take this environment"
_BY_ITS_PROGRAM = "its program has to connect again"
#: Whoever has begun an attempt still waits after these: its work has not begun.
_NOT_BEGUN = frozenset({FailureKind.REFUSED})
#: More doublings than this exceed every limit.
_MAX_DOUBLINGS = 16
#: A retry after these could repeat finished work.
_NEVER_AGAIN = frozenset({FailureKind.OUTCOME_UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """The decision after a failure: another attempt after `delay_s`, or the end."""

    again: bool
    delay_s: float
    infra_failures: int
    user_failures: int
    avoid: tuple[str, ...]
    #: The decision in words, for the event; empty where there is nothing to tell.
    sentence: str


def decide_retry(
    job: Job,
    kind: FailureKind,
    *,
    rules: RetryRules,
    jitter: float,
    least_delay_s: float = 0.0,
    elsewhere: bool = True,
    restartable: bool = True,
) -> RetryDecision:
    """Decide whether to retry after a failed attempt. `jitter` is a number from 0 to 1.

    `elsewhere` means that another cluster might be able to set up this environment; not `restartable`, that
    only whoever has begun the work can begin it again.
    """
    users_own = kind in _USERS_OWN
    user_failures = job.user_failures + users_own
    infra_failures = job.infra_failures + (not users_own)
    used, budget, whose = (
        (user_failures, job.spec.max_retries, _OF_THE_JOB)
        if users_own
        else (infra_failures, rules.max_infra_retries, "max_infra_retries")
    )
    stuck = kind is FailureKind.NO_ENVIRONMENT and not elsewhere
    is_over = not restartable and kind not in _NOT_BEGUN
    again = used <= budget and kind not in _NEVER_AGAIN and not stuck and not is_over
    delay = min(rules.max_delay_s, rules.delay_s * 2.0 ** min(used - 1, _MAX_DOUBLINGS))
    delay = max(least_delay_s, delay * (0.5 + jitter / 2)) if again else 0.0
    avoid = job.avoid
    if kind in _ELSEWHERE and job.cluster and job.cluster not in avoid:
        avoid = (*avoid, job.cluster)
    return RetryDecision(
        again=again,
        delay_s=delay,
        infra_failures=infra_failures,
        user_failures=user_failures,
        avoid=avoid,
        sentence=_BY_ITS_PROGRAM
        if is_over
        else _NOWHERE_ELSE
        if stuck
        else _sentence(kind, again=again, used=used, budget=budget, whose=whose, delay=delay),
    )


def _sentence(kind: FailureKind, *, again: bool, used: int, budget: int, whose: str, delay: float) -> str:
    if again:
        where = " on another cluster" if kind is FailureKind.NO_ENVIRONMENT else ""
        return f"tried again{where} in {delay:.1f} s (retry {used} of {budget}, {whose})"
    if kind in _NEVER_AGAIN:
        return "not tried again, because it may have done its work"
    if budget:
        return f"no retry left ({budget} of {budget})"
    return (
        "" if whose == _OF_THE_JOB else f"not tried again ({whose} is 0)"
    )  # that nobody asked for one is no news
