"""From the records of the scheduler to what callers see, without secrets (environment/redact.py)."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import starmap
from typing import Any

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.placement.capacity import driver_limit
from ray_multicluster_scheduler.environment.compose import origins
from ray_multicluster_scheduler.environment.redact import REDACTED, redact_env, redact_text, secrets_of
from ray_multicluster_scheduler.errors import NoResult
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.decision import Cause, Placement, Waiting
from ray_multicluster_scheduler.model.decision import ClusterView as PlannedCluster
from ray_multicluster_scheduler.model.execution import ORDINARY, Capabilities, Session
from ray_multicluster_scheduler.model.job import Attempt, AttemptSpan, Job, JobEvent, Target, left_alone
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS
from ray_multicluster_scheduler.model.result import RESULT_VAR, LeftResult, ResultKind, read_result
from ray_multicluster_scheduler.model.states import RAY_STATUS
from ray_multicluster_scheduler.service.views import (
    AttemptView,
    ClusterView,
    ConfigView,
    DecisionView,
    JobDetail,
    JobView,
    PendingView,
    ResultView,
    SessionView,
    SpanView,
)
from ray_multicluster_scheduler.text import nearest


class Secrets:
    """What is secret in the environments that jobs may have been sent with."""

    def __init__(self, clusters: Sequence[ClusterSpec]) -> None:
        self._of_clusters = frozenset(each for spec in clusters for each in secrets_of(spec.runtime_env))

    def of(self, job: Job, attempts: Sequence[Attempt] = ()) -> frozenset[str]:
        """Return the texts to hide in whatever is shown of a job."""
        own = [job.spec.runtime_env, *(attempt.runtime_env for attempt in attempts)]
        return self._of_clusters.union(*(secrets_of(env) for env in own))


def show_job(
    job: Job,
    secrets: Collection[str],
    *,
    can: Capabilities = ORDINARY,
    warnings: Sequence[str] = (),
    waits: tuple[str, str] | None = None,
) -> JobView:
    """Show a job as it was asked for.

    `can` is what its executor can do; `waits`, why it waits, in a word and in a sentence.
    """
    return JobView(**_job_fields(job, secrets, can), **_wait_fields(waits), warnings=tuple(warnings))


def show_detail(
    job: Job,
    attempts: Sequence[Attempt],
    log: str | None,
    secrets: Collection[str],
    *,
    cluster_envs: Mapping[str, Mapping[str, Any]],
    can: Capabilities = ORDINARY,
    warnings: Sequence[str] = (),
    waits: tuple[str, str] | None = None,
) -> JobDetail:
    """Show all that is known of a job; of an attempt that was sent, as it was sent."""
    fields = _job_fields(job, secrets, can) | _wait_fields(waits)
    last = attempts[-1] if attempts else None
    if last is not None:
        fields["cluster"] = job.cluster or last.cluster
    if last is not None and last.entrypoint:
        fields["entrypoint"] = redact_text(last.entrypoint, secrets)
        fields["runtime_env"] = redact_env(last.runtime_env)
    shown = show_attempts(job, attempts, secrets, cluster_envs=cluster_envs)
    logs = None if log is None else redact_text(log, secrets)
    return JobDetail(**fields, warnings=tuple(warnings), attempts=shown, logs=logs)


def show_result(
    job: Job, left: tuple[int, LeftResult] | None, secrets: Collection[str], *, can: Capabilities
) -> ResultView:
    """Show what a job has left; `NoResult` says why there is nothing."""
    if not job.final:
        raise NoResult(
            job.submission_id, f"it has not ended (it is {job.state.value}); `raymc wait` waits for it"
        )
    if left is None and not can.leaves_result:
        raise NoResult(
            job.submission_id,
            f"its executor {job.spec.executor!r} runs no program on a cluster that could leave one",
        )
    if left is None:
        raise NoResult(
            job.submission_id,
            f"its last attempt left none in the file that {RESULT_VAR} names (in Python: `set_result`)",
        )
    attempt, file = left
    if file.problem is not None:
        raise NoResult(job.submission_id, redact_text(file.problem, secrets))
    result = read_result(file.content)
    return ResultView(
        submission_id=job.submission_id,
        attempt=attempt,
        kind=result.kind,
        value=b64encode(result.value).decode() if result.kind is ResultKind.BYTES else result.value,
        size_bytes=result.size_bytes,
    )


def warnings_of(job: Job, clusters: Collection[str], *, has_executor: bool) -> tuple[str, ...]:
    """Return what the submitter of an open job should know, where these clusters are configured."""
    if job.final:
        return ()
    if not has_executor:
        return (left_alone(job),)
    name = job.spec.preferred_cluster
    if name is None or name in clusters:
        return ()
    guess = nearest(name, clusters)
    hint = f"did you mean {guess!r}?" if guess else f"there are {', '.join(clusters)}."
    return (f"preferred_cluster {name!r} is not configured; {hint} The job goes to the best of all",)


def show_attempts(
    job: Job,
    attempts: Sequence[Attempt],
    secrets: Collection[str],
    *,
    cluster_envs: Mapping[str, Mapping[str, Any]],
) -> tuple[AttemptView, ...]:
    """Show the placements of a job.

    `cluster_envs` is what the configuration says today; a cluster may have been removed from it.
    """
    return tuple(
        show_attempt(attempt, job, cluster_envs.get(attempt.cluster, {}), secrets) for attempt in attempts
    )


def show_attempt(
    attempt: Attempt, job: Job, cluster_env: Mapping[str, Any], secrets: Collection[str]
) -> AttemptView:
    """Show one placement."""
    return AttemptView(
        number=attempt.number,
        cluster=attempt.cluster,
        remote_id=attempt.remote_id,
        executor=attempt.executor,
        session_name=attempt.session_name,
        entrypoint=redact_text(attempt.entrypoint, secrets),
        runtime_env=redact_env(attempt.runtime_env),
        decision=show_decision(attempt.decision) if attempt.decision else None,
        placed_at=attempt.placed_at,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        end_unreported=attempt.end_unreported,
        outcome=attempt.outcome,
        reason=redact_text(attempt.reason, secrets),
        origins=origins(attempt.runtime_env, cluster_env, job.spec.runtime_env),
    )


def show_span(span: AttemptSpan) -> SpanView:
    """Show an attempt as a bar of a timeline."""
    return SpanView(
        submission_id=span.submission_id,
        job_id=span.name or "",
        user=span.user,
        group=span.group,
        cluster=span.cluster,
        attempt=span.attempt,
        placed_at=span.placed_at,
        started_at=span.started_at,
        ended_at=span.ended_at,
        end_unreported=span.end_unreported,
        outcome=span.outcome,
        state=span.state,
        claim=dict(span.claim),
    )


def _told_refusals(refusals: Mapping[str, Any]) -> dict[str, Any]:
    """Return the refusals that say why a job waits: a cluster that it may not run on is no reason."""
    told = {repr(name): each for name, each in refusals.items() if each["cause"] != Cause.EXCLUDED}
    if len(told) == 1 < len(refusals):
        return {f"its only cluster {name}": each for name, each in told.items()}
    return told or {repr(name): each for name, each in refusals.items()}


def show_decision(decided: Placement | Waiting | Mapping[str, Any]) -> DecisionView:
    """Show a decision of the planner, fresh or as it was kept with an attempt."""
    found = decided if isinstance(decided, Mapping) else asdict(decided)
    refusals = found.get("refusals", {})
    sentence = found.get("sentence") or "; ".join(
        f"{name}: {refusal['sentence']}" for name, refusal in _told_refusals(refusals).items()
    )
    return DecisionView(
        cluster=found.get("cluster"),
        sentence=sentence,
        scores=found.get("scores", {}),
        refusals=refusals,
        position=found.get("position"),
        reserved_on=found.get("reserved_on"),
    )


def show_event(event: JobEvent, secrets: Collection[str]) -> JobEvent:
    """Show one move of one job."""
    return replace(event, reason=redact_text(event.reason, secrets))


def show_cluster(planned: PlannedCluster, *, now: float, running_jobs: int | None = None) -> ClusterView:
    """Show a cluster as the planner sees it."""
    spec, seen = planned.spec, planned.snapshot
    return ClusterView(
        name=spec.name,
        health=seen.health,
        score=seen.score,
        problem=seen.problem,
        total=None if seen.total is None else dict(seen.total),
        used=None if seen.used is None else dict(seen.used),
        claimed=dict(planned.reserved),
        claimed_by_others=dict(seen.claimed_by_others),
        live_jobs=planned.live_jobs,
        max_running_jobs=driver_limit(spec, seen),
        running_jobs=running_jobs,
        nodes=seen.nodes,
        pending=None if seen.pending is None else tuple(starmap(_pending, seen.pending)),
        ray_version=seen.ray_version,
        python_version=seen.python_version,
        session_name=seen.session_name,
        latency_s=seen.latency_s,
        observed_at=seen.observed_at,
        age_s=seen.age_s(now),
        throttle=seen.throttle,
        throttle_reason=seen.throttle_reason,
        tags=spec.tags,
        prefer=spec.prefer,
        weight=spec.weight,
        drained=planned.drained,
        drain_reason=planned.drain_reason if planned.drained else None,
        drained_at=planned.drained_at,
        dashboard=spec.dashboard,
        head_address=spec.head_address,
    )


def _pending(shape: Mapping[str, float], count: int) -> PendingView:
    return PendingView(resources=dict(shape), count=count)


def show_session(job: Job, session: Session, secrets: Collection[str]) -> SessionView:
    """Show a session with its helper process."""
    return SessionView(
        submission_id=job.submission_id,
        user=job.spec.user,
        state=job.state,
        message=redact_text(job.reason, secrets),
        cluster=job.cluster,
        accepted_at=job.accepted_at,
        started_at=job.started_at,
        client_address=job.spec.client_address,
        helper_pid=session.helper_pid,
        helper_address=session.helper_address,
        ray_job_id=session.ray_job_id,
    )


def _wait_fields(waits: tuple[str, str] | None) -> dict[str, str]:
    return {} if waits is None else {"wait_reason": waits[0], "waits_for": waits[1]}


def _job_fields(job: Job, secrets: Collection[str], can: Capabilities) -> dict[str, Any]:
    spec = job.spec
    return {
        "submission_id": job.submission_id,
        "job_id": spec.name or "",
        "user": spec.user,
        "state": job.state,
        "status": RAY_STATUS[job.state],
        "message": redact_text(job.reason, secrets),
        "cluster": job.cluster,
        "attempt": job.attempt,
        "remote_id": job.remote_id,
        "stopping": job.target is Target.STOPPED and not job.final,
        "entrypoint": redact_text(spec.entrypoint, secrets),
        "runtime_env": redact_env(spec.runtime_env),
        "metadata": {key: redact_text(value, secrets) for key, value in spec.metadata.items()},
        **{option.name: getattr(spec, option.name) for option in JOB_OPTIONS},
        "resource_requirements": dict(spec.claim),
        "entrypoint_resources": dict(spec.entrypoint_resources),
        "entrypoint_label_selector": dict(spec.entrypoint_label_selector),
        "error_type": job.error_type,
        "exit_code": job.exit_code,
        "infra_failures": job.infra_failures,
        "user_failures": job.user_failures,
        "avoid": job.avoid,
        "accepted_at": job.accepted_at,
        "placed_at": job.placed_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "end_unreported": job.end_unreported,
        "changed_at": job.changed_at,
        "not_before": job.not_before,
        "head": job.head,
        "has_log": can.keeps_log,
        "repeatable": can.restartable,
    }


# The configuration, for operators: as it was loaded, without secrets.


#: As a part of the query of a PostgreSQL address.
_PASSWORD = re.compile(r"(?<=password=)[^&]+", re.IGNORECASE)


def show_config(config: Config) -> ConfigView:
    """Show a configuration. Of a token it has only the name of the variable that holds it."""
    clusters = {}
    for spec in config.clusters:
        fields = asdict(spec)
        del fields["name"]
        # The outer call hides users and passwords in the addresses; variables are below `runtime_env` only.
        clusters[spec.name] = redact_env({**fields, "runtime_env": redact_env(spec.runtime_env)})
    # A store is opened only without a password in its address, but the environment may name another one.
    settings = {
        name: _PASSWORD.sub(REDACTED, value) if isinstance(value, str) else value
        for name, value in config.settings.model_dump(mode="json").items()
    }
    return ConfigView(
        path=str(config.path),
        clusters=clusters,
        settings=redact_env(settings),
        server=redact_env(config.server.model_dump(mode="json")),
    )
