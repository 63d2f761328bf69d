"""Jobs as callers see them: accept, stop, look, wait."""

from __future__ import annotations

import sys
import warnings
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.errors import JobsFailed
from ray_multicluster_scheduler.model.access import Terms, named_ids
from ray_multicluster_scheduler.model.job import Job, JobSpec
from ray_multicluster_scheduler.model.states import RAY_STATUS
from ray_multicluster_scheduler.policy.guess import nearest
from ray_multicluster_scheduler.policy.redact import redact_env, redact_text, secrets_of
from ray_multicluster_scheduler.policy.repeat import repeats, to_repeat
from ray_multicluster_scheduler.policy.views import Fits
from ray_multicluster_scheduler.policy.visible import visible
from ray_multicluster_scheduler.ports import Clock, JobStore
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.access import Caller, audit_entry
from ray_multicluster_scheduler.service.admission import Admission
from ray_multicluster_scheduler.service.find import find, find_each, newest_named
from ray_multicluster_scheduler.service.hub import EventHub
from ray_multicluster_scheduler.service.request import JobRequest, checked
from ray_multicluster_scheduler.service.waiting import LONGEST_NAP_S, Waiting, changes, changes_async, failed

UNKNOWN = "UNKNOWN"
#: How much of a failed job's log a waiting caller is shown.
LAST_LOG_LINES = 10


class JobService:
    """The use cases around the store. It decides nothing about placement and talks to no cluster."""

    def __init__(self, config: Config, store: JobStore, clock: Clock, hub: EventHub) -> None:
        self._config = config
        self._fits = Fits(config.clusters)
        self._admission = Admission(config, store, clock, self._fits)
        self._store = store
        self._clock = clock
        self._hub = hub

    def submit(self, requests: Sequence[JobRequest], *, by: Caller | None = None) -> tuple[Job, ...]:
        """Accept jobs, all or none; they are on disk when this returns."""
        accepted = [checked(request, fits=self._fits) for request in requests]
        for name in dict.fromkeys(spec.preferred_cluster for _, spec in accepted):
            self._warn_of_unknown_cluster(name)
        self._admission.check([spec for _, spec in accepted])
        return self._add(accepted, "submit", by)

    def retry(self, submission_ids: Sequence[str], *, user: str, by: Caller | None = None) -> tuple[Job, ...]:
        """Accept new jobs that do the same as those of these that have failed or were stopped."""
        jobs = to_repeat(list(self.find_each(submission_ids)))
        return self._add(repeats(jobs, user=user, taken=self._taken), "retry", by)

    def _add(self, jobs: Sequence[tuple[str, JobSpec]], action: str, by: Caller | None) -> tuple[Job, ...]:
        now = self._clock.now()
        quotas = {user: entry.quota() for user, entry in self._config.settings.quotas.items()}
        terms = Terms(
            quotas=quotas,
            only=None if by is None else by.only,
            audit=None if by is None else audit_entry(by, action, now=now),
        )
        return self._store.add(jobs, now=now, terms=terms)

    def _taken(self, word: str) -> bool:
        return bool(self._store.get_many([word]) or self._store.list_jobs(group=word, limit=1))

    def find(self, word: str) -> tuple[Job, ...]:
        """Return the jobs that a word on a command line means, oldest first: an id, a `job_id` or a group.

        Raises `JobNotFound` with the nearest word that is known; see `service/find.py`.
        """
        return find(self._store, word)

    def find_each(self, words: Sequence[str]) -> tuple[Job, ...]:
        """Return for each word the job with this submission id, else the newest with this `job_id`.

        Raises `JobNotFound`. A job that several words mean is returned once.
        """
        return find_each(self._store, words)

    def find_one(self, word: str) -> Job:
        """Return the job with this submission id, else the newest with this `job_id`; or `JobNotFound`."""
        return self.find_each([arguments.text("submission_id", word, empty=True)])[0]

    def status(self, word: str) -> str:
        """Return Ray's word for the state of the job that `find_one` would return, `UNKNOWN` without one."""
        word = arguments.text("submission_id", word, empty=True)
        job = self._store.get_many([word]).get(word) or newest_named(self._store, word)
        return UNKNOWN if job is None else RAY_STATUS[job.state]

    def info(self, submission_id: str) -> dict[str, Any]:
        """Return all that is known of a job, secrets hidden; raises `JobNotFound`."""
        job = self._store.get(submission_id)
        attempts = self._store.attempts(submission_id)
        last = attempts[-1] if attempts else None
        sent = [job.spec.runtime_env, *(attempt.runtime_env for attempt in attempts)]
        secrets = {secret for env in sent for secret in secrets_of(env)}
        return {
            "submission_id": job.submission_id,
            "job_id": job.spec.name,
            "status": RAY_STATUS[job.state],
            "state": job.state.value,
            "message": redact_text(job.reason, secrets),
            "cluster": job.cluster or (last.cluster if last else None),
            "entrypoint": redact_text(last.entrypoint if last else job.spec.entrypoint, secrets),
            "runtime_env": redact_env(last.runtime_env if last else job.spec.runtime_env),
            "metadata": {key: redact_text(value, secrets) for key, value in job.spec.metadata.items()},
            "tags": list(job.spec.tags),
            "user": job.spec.user,
            "priority": job.spec.priority,
            "depends_on": list(job.spec.depends_on),
            "resource_requirements": dict(job.spec.claim),
            "accepted_at": job.accepted_at,
            "started_at": job.started_at,
            "ended_at": job.ended_at,
            "error_type": job.error_type,
            "exit_code": job.exit_code,
            "attempt": job.attempt,
            "attempts": [_attempt_info(attempt, secrets) for attempt in attempts],
            "logs": self._store.load_log(submission_id),
        }

    def stop(
        self,
        submission_ids: Sequence[str],
        *,
        reason: str = "stopped by the user",
        by: Caller | None = None,
    ) -> tuple[Job, ...]:
        """Ask for these jobs to be stopped, wherever they are; returns their rows as they are now."""
        ids = arguments.words("submission_ids", submission_ids)
        why = arguments.text("reason", reason)
        now = self._clock.now()
        audit = None if by is None else audit_entry(by, "stop", named_ids(ids), now=now)
        return self._store.request_stop(ids, now=now, reason=why, audit=audit)

    def set_drained(self, cluster: str, *, drained: bool, reason: str, by: Caller | None = None) -> None:
        """Let a cluster have no new jobs, or let it have them again."""
        why = arguments.text("reason", reason, empty=True)
        now = self._clock.now()
        action = "drain" if drained else "undrain"
        audit = None if by is None else audit_entry(by, action, cluster, now=now)
        self._store.set_drained(cluster, drained=drained, reason=why, now=now, audit=audit)

    def changes(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> Iterator[Mapping[str, Job]]:
        """Yield these jobs at once, on each change, and every `tick_s`; ends when all have ended.

        Raises `WaitTimeout` when that takes longer than `timeout_s`.
        """
        yield from changes(self._hub, self._waiting(submission_ids, timeout_s), tick_s=tick_s)

    async def changes_async(
        self, submission_ids: Sequence[str], *, timeout_s: float | None, tick_s: float
    ) -> AsyncGenerator[Mapping[str, Job], None]:
        """Yield the same for asyncio, where no thread waits."""
        waiting = self._waiting(submission_ids, timeout_s)
        async with aclosing(changes_async(self._hub, waiting, tick_s=tick_s)) as found:
            async for jobs in found:
                yield jobs

    def raise_if_failed(self, jobs: Mapping[str, Job]) -> None:
        """Raise `JobsFailed` when one of these jobs has ended without success; it says which and why."""
        if not (bad := failed(jobs.values())):
            return
        pending = sum(not job.final for job in jobs.values())
        others = f"\n{pending} other job(s) go on" if pending else ""
        raise JobsFailed(
            "\n".join(self.how_it_failed(job) for job in bad) + others, [job.submission_id for job in bad]
        )

    def wait(
        self,
        submission_ids: Sequence[str],
        *,
        timeout_s: float | None = None,
        tick_s: float = LONGEST_NAP_S,
        watch: Callable[[Mapping[str, Job]], None] = lambda _: None,
    ) -> None:
        """Wait until all have ended; raises `JobsFailed` at the end when one did not succeed."""
        jobs: Mapping[str, Job] = {}
        for jobs in self.changes(submission_ids, timeout_s=timeout_s, tick_s=tick_s):
            watch(jobs)
        self.raise_if_failed(jobs)

    def how_it_failed(self, job: Job) -> str:
        """Tell which job did not succeed, where and why, with the end of its log."""
        text = self._store.load_log(job.submission_id) or ""
        lines = redact_text(text, self.secrets(job)).rstrip().splitlines()[-LAST_LOG_LINES:]
        name = job.spec.metadata.get("job_name") or job.spec.own_name
        log = "".join(f"\n    | {line}" for line in lines) or "\n    | (no log was kept)"
        where = f"on {job.cluster!r}" if job.cluster else "before it got a cluster"
        named = f"{job.submission_id} ({name})" if name else job.submission_id
        return visible(f"job {named} {job.state.value} {where}: {job.reason}{log}")

    def secrets(self, job: Job) -> tuple[str, ...]:
        """Return what is secret in the environments that a job may have been sent with."""
        envs = [job.spec.runtime_env, *(spec.runtime_env for spec in self._config.clusters)]
        return tuple(secret for env in envs for secret in secrets_of(env))

    def _waiting(self, submission_ids: Sequence[str], timeout_s: float | None) -> Waiting:
        # Checked, because one query reads the jobs of all who wait: a bad id must not fail the others.
        ids = arguments.words("submission_ids", submission_ids)
        return Waiting(self._clock, ids, timeout_s=timeout_s)

    def _warn_of_unknown_cluster(self, name: str | None) -> None:
        names = [cluster.name for cluster in self._config.clusters]
        if name is not None and name not in names:
            guess = nearest(name, names)
            hint = f"did you mean {guess!r}?" if guess else f"there are {', '.join(names)};"
            warnings.warn(
                f"preferred_cluster {name!r} is not configured; {hint} The job goes to the best of all",
                stacklevel=_stacklevel_of_the_caller(),
            )


def _stacklevel_of_the_caller() -> int:
    """Return the level, for a warning where this is called, of the first line that is not ours."""
    ours = __name__.partition(".")[0] + "."
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(ours):
        level, frame = level + 1, frame.f_back
    return level


def _attempt_info(attempt: Any, secrets: Collection[str]) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "cluster": attempt.cluster,
        "remote_id": attempt.remote_id,
        "placed_at": attempt.placed_at,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "outcome": attempt.outcome,
        "reason": redact_text(attempt.reason, secrets),
    }
