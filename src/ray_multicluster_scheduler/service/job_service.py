"""Jobs as callers see them: accept, stop, wait."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.placement.checks import has_versions_of_client
from ray_multicluster_scheduler.core.placement.inputs import Fits
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.access import Terms, named_ids
from ray_multicluster_scheduler.model.client_session import SessionClient
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.execution import RAY_CLIENT
from ray_multicluster_scheduler.model.job import Job, JobSpec
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.admission import Admission
from ray_multicluster_scheduler.service.caller import Caller, audit_entry
from ray_multicluster_scheduler.service.event_hub import EventHub
from ray_multicluster_scheduler.service.find_jobs import find_each
from ray_multicluster_scheduler.service.repeat import repeats, to_repeat
from ray_multicluster_scheduler.service.request import JobRequest, checked
from ray_multicluster_scheduler.service.waiting import Waiting, changes, changes_async
from ray_multicluster_scheduler.store_ports import JobStore


class JobService:
    """The use cases around the store. It decides nothing about placement."""

    def __init__(
        self,
        config: Config,
        store: JobStore,
        clock: Clock,
        hub: EventHub,
        look: Callable[[], Mapping[str, ClusterSnapshot] | None] = lambda: None,
    ) -> None:
        """`look` probes the clusters where nobody leads; it returns None where somebody does."""
        self._config = config
        self._fits = Fits(config.clusters)
        self._admission = Admission(config, store, clock, self._fits, look)
        self._store = store
        self._clock = clock
        self._hub = hub

    def submit(self, requests: Sequence[JobRequest], *, by: Caller | None = None) -> tuple[Job, ...]:
        """Accept jobs, all or none; they are on disk when this returns."""
        return self._add(self._admitted(requests), "submit", by)

    def check(
        self,
        request: JobRequest,
        *,
        by: Caller,
        snapshots: Mapping[str, ClusterSnapshot],
    ) -> tuple[str, JobSpec]:
        """Refuse what `submit` would refuse, with the same error; return id and spec. Nothing is stored."""
        accepted = self._admitted([request], snapshots=snapshots)
        self._store.check_add(accepted, now=self._clock.now(), terms=self._terms(by))
        return accepted[0]

    def _admitted(
        self, requests: Sequence[JobRequest], *, snapshots: Mapping[str, ClusterSnapshot] | None = None
    ) -> list[tuple[str, JobSpec]]:
        """Return ids and specs of jobs that some cluster may run one day."""
        admitted = [checked(request, fits=self._fits) for request in requests]
        self._admission.check([spec for _, spec in admitted], snapshots=snapshots)
        return admitted

    def open_session(self, request: JobRequest, client: SessionClient, *, by: Caller) -> Job:
        """Accept a Ray Client session: a job that a program outside the clusters runs."""
        submission_id, spec = checked(request, fits=self._fits)
        session = replace(
            spec,
            executor=RAY_CLIENT,
            client_address=client.address,
            client_ray=client.ray,
            client_python=client.python,
        )
        self._check_versions(client)
        self._admission.check([session])
        return self._add([(submission_id, session)], "session", by)[0]

    def _check_versions(self, client: SessionClient) -> None:
        """Refuse a program whose Ray or Python no cluster has. It may fit where none is told."""
        seen = self._store.load_snapshots([spec.name for spec in self._config.clusters])
        others = {
            name: f"Ray {snapshot.ray_version} and Python {snapshot.python_version}"
            for name, snapshot in seen.items()
            if has_versions_of_client(
                client.ray, client.python, snapshot.ray_version, snapshot.python_version
            )
        }
        if others and len(others) == len(self._config.clusters):
            raise InvalidRequest(
                f"this program has Ray {client.ray or 'of an unknown version'} and Python "
                f"{client.python or 'of an unknown version'}, and Ray Client needs the same Ray and the same "
                "minor version of Python at both ends: "
                + "; ".join(f"cluster {name!r} has {versions}" for name, versions in others.items())
            )

    def retry(self, submission_ids: Sequence[str], *, user: str, by: Caller | None = None) -> tuple[Job, ...]:
        """Accept a new job for each of these that has failed or was stopped, with the same options."""
        jobs = to_repeat(list(find_each(self._store, submission_ids)))
        return self._add(repeats(jobs, user=user, taken=self._store.taken), "retry", by)

    def _add(self, jobs: Sequence[tuple[str, JobSpec]], action: str, by: Caller | None) -> tuple[Job, ...]:
        if by is not None and by.job is not None:  # proved by its token, whatever the request says
            jobs = [(name, replace(spec, parent=by.job)) for name, spec in jobs]
        now = self._clock.now()
        audit = None if by is None else audit_entry(by, action, now=now)
        return self._store.add(jobs, now=now, terms=replace(self._terms(by), audit=audit))

    def _terms(self, by: Caller | None) -> Terms:
        quotas = {user: entry.quota() for user, entry in self._config.settings.quotas.items()}
        return Terms(quotas=quotas, only=None if by is None else by.only)

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
        """Drain a cluster, so that it gets no new jobs, or undo that."""
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
        """Like the blocking version, for asyncio: no thread waits."""
        waiting = self._waiting(submission_ids, timeout_s)
        async with aclosing(changes_async(self._hub, waiting, tick_s=tick_s)) as found:
            async for jobs in found:
                yield jobs

    def _waiting(self, submission_ids: Sequence[str], timeout_s: float | None) -> Waiting:
        # Checked here, because one query reads the jobs of all waiters: a bad id must not fail the others.
        ids = arguments.words("submission_ids", submission_ids)
        return Waiting(self._clock, ids, timeout_s=timeout_s)
