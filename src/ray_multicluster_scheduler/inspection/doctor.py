"""Examines every cluster of a configuration: what is wrong with it, and what to do about it.

A trial goes further: it runs a short job on the cluster, as any job would run there. The job is sent to the
cluster directly, without the queue, and is removed from it afterwards.
"""

from __future__ import annotations

import asyncio
import platform
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ray_multicluster_scheduler.asyncio_tools import together, within
from ray_multicluster_scheduler.clock import jitter
from ray_multicluster_scheduler.cluster_health.diagnosis import Check, Versions, diagnose
from ray_multicluster_scheduler.cluster_health.examine import examine
from ray_multicluster_scheduler.cluster_health.trial import (
    Trial,
    can_run,
    diagnose_trial,
    entrypoint,
    failed,
    found_in,
    late,
    no_result,
    not_run,
)
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.config.installed import ray_version
from ray_multicluster_scheduler.core.lifecycle.attempt_request import compose_submit
from ray_multicluster_scheduler.engine.send import pack
from ray_multicluster_scheduler.environment.redact import redact_text, secrets_of
from ray_multicluster_scheduler.errors import (
    ClusterBadAnswer,
    ClusterError,
    ClusterTimeout,
    SchedulerError,
)
from ray_multicluster_scheduler.model.cluster import TRIAL_S, ClusterSpec
from ray_multicluster_scheduler.model.execution import AttemptStatus, Sighting, StartRequest
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.packages.own_package import OwnPackage, with_own_package
from ray_multicluster_scheduler.packages.runtime_env import localise
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.upload import Uploader
from ray_multicluster_scheduler.ports import Clock, ClusterConnection, Executor
from ray_multicluster_scheduler.ray_api.http_connection import HttpConnection, open_connection

#: How the job of a trial begins its id on the cluster.
TRIAL_ID = "raymc-probe-"
#: The name that its metadata gives as its origin: no scheduler has it, so none takes the job for its own.
ORIGIN = "raymc doctor"
LOOK_EVERY_S = 0.5
#: Ray stops a job within about 4 s. One that has not begun stops when it begins.
STOPS_IN_S = 10.0
LOOK_AGAIN_S = 1.5
DELETIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """That a short job is to run on each cluster, and how."""

    packages: PackageStore
    timeout_s: float = TRIAL_S


async def diagnose_all(
    config: Config,
    specs: Sequence[ClusterSpec],
    environ: Mapping[str, str],
    clock: Clock,
    trials: Trials | None = None,
) -> dict[str, tuple[Check, ...]]:
    """Return the checks of each of these clusters of a configuration, by its name."""
    checked = await together(_diagnose(spec, config, environ, clock, trials) for spec in specs)
    return {spec.name: checks for spec, checks in zip(specs, checked, strict=True)}


async def _diagnose(
    spec: ClusterSpec, config: Config, environ: Mapping[str, str], clock: Clock, trials: Trials | None
) -> tuple[Check, ...]:
    settings = config.settings
    timeout_s = settings.probe_timeout_s
    async with (
        open_connection(
            spec, environ, request_timeout_s=timeout_s, upload_timeout_s=settings.upload_timeout_s
        ) as connection,
        HttpConnection(spec, request_timeout_s=timeout_s) as anonymous,
    ):
        evidence = await examine(
            spec,
            probe=connection.probe,
            anonymous=anonymous.probe,
            watch=ClusterWatch(
                {spec.name: connection}, clock=clock, settings=settings, jitter=jitter, lists_jobs=True
            ),
            token_set=bool(spec.auth_token_env and environ.get(spec.auth_token_env)),
            ours=Versions(ray=ray_version(), python=platform.python_version()),
            timeout_s=timeout_s,
            lost_after_s=settings.lost_after_refused_s,
            folder=config.path.resolve().parent,
        )
        checks = diagnose(evidence)
        if trials is None:
            return checks
        if not can_run(checks):
            return (*checks, not_run())
        trial = await _TrialJob(spec, config, connection, clock, trials).run()
    found = diagnose_trial(evidence, trial) if isinstance(trial, Trial) else [trial]
    hidden = secrets_of(spec.runtime_env)
    return (*checks, *(replace(check, says=redact_text(check.says, hidden)) for check in found))


class _TrialJob:
    """One short job on one cluster."""

    def __init__(
        self, spec: ClusterSpec, config: Config, connection: ClusterConnection, clock: Clock, trials: Trials
    ) -> None:
        self._spec = spec
        self._config = config
        self._connection = connection
        self._executor: Executor = connection.executor
        self._clock = clock
        self._trials = trials
        self._id = f"{TRIAL_ID}{uuid.uuid4().hex}"
        self._seen: Sighting | None = None
        #: When the job was last known not to have begun.
        self._after = clock.now()

    async def run(self) -> Trial | Check:
        """Run the job and remove it from the cluster. Return the line about it if it printed nothing."""
        try:
            request = await self._packed()
        except (SchedulerError, OSError) as error:
            return no_result(f"a short job could not be sent: {error}")
        began = self._clock.monotonic()
        try:
            await self._executor.start(request)
            seen = await within(self._trials.timeout_s, self._end())
            took_s, before = self._clock.monotonic() - began, self._clock.now()
            log = await self._executor.log(self._id)
        except asyncio.TimeoutError:
            return late(self._id, self._seen, self._trials.timeout_s)
        except ClusterError as error:
            return no_result(f"a short job: {error.detail}")
        finally:
            await self._remove()
        if (found := found_in(log)) is None:
            return failed(seen, log)
        return Trial(found=found, took_s=took_s, after=self._after, before=before)

    async def _packed(self) -> StartRequest:
        """Return what an attempt of any job on this cluster would be sent with; its packages are there."""
        packages, spec = self._trials.packages, self._spec
        folder = self._config.path.resolve().parent
        own_env = await asyncio.to_thread(localise, spec.runtime_env, packages, cwd=folder)
        job = JobSpec(entrypoint=entrypoint(), user=ORIGIN, requirements={"CPU": 0.0})
        target, clusters = replace(spec, runtime_env=own_env), self._config.clusters
        request = compose_submit(self._id, job, 1, target, clusters, origin=ORIGIN)
        own_package = OwnPackage(packages) if spec.ship_package else None
        uploader = Uploader(self._connection.packages, packages)
        request, own_name = await pack(request, uploader, packages, own_package)
        if own_name is None:
            return request
        return replace(request, runtime_env=with_own_package(request.runtime_env, f"gcs://{own_name}"))

    async def _end(self) -> Sighting:
        """Wait until the job has ended."""
        while True:
            asked_at = self._clock.now()
            with suppress(ClusterTimeout, ClusterBadAnswer):  # the next look may get an answer
                self._seen = await self._executor.get(self._id)
                if self._seen.status.final:
                    return self._seen
                if self._seen.status is AttemptStatus.PENDING:
                    self._after = asked_at
            await asyncio.sleep(LOOK_EVERY_S)

    async def _remove(self) -> None:
        """Stop the job if it has not ended, and let the cluster forget it.

        Ray looks at a job once a second. If it finds that one was deleted that had ended since its last look,
        it writes a new record, as of a job that failed. So that one is deleted too.
        """
        with suppress(ClusterError, asyncio.TimeoutError):
            if self._seen is None or not self._seen.status.final:
                await self._executor.stop(self._id)
                await within(STOPS_IN_S, self._end())
            for _ in range(DELETIONS):
                await self._executor.delete(self._id)
                await asyncio.sleep(LOOK_AGAIN_S)
                await self._executor.get(self._id)  # it is gone: an error, which ends this
