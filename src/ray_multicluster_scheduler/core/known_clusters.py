"""What the leader sees of every cluster, with what it knows besides.

The planner decides by this and nothing else, and it is published as it is: so `explain` and the dry run, in
whichever process, decide as the leader does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import is_

from ray_multicluster_scheduler.core.lifecycle.attempts import after_head_look, refusal_counts
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.pacing import StartLimits
from ray_multicluster_scheduler.core.placement.inputs import World, cluster_view, env_key
from ray_multicluster_scheduler.core.quarantine import Quarantine
from ray_multicluster_scheduler.core.rules import QuarantineRules
from ray_multicluster_scheduler.environment.setup_failure import MOST_REMEMBERED, failed_setup
from ray_multicluster_scheduler.model.cluster import (
    ClusterSnapshot,
    ClusterSpec,
    DrainMark,
    FailedSetup,
    Health,
    Witness,
)
from ray_multicluster_scheduler.model.decision import ClusterView
from ray_multicluster_scheduler.model.execution import Capabilities
from ray_multicluster_scheduler.model.job import Job

#: What a view was made of: the snapshot, the version of its jobs, and its mark.
_Made = tuple[ClusterSnapshot, int, object]


class KnownClusters:
    """Snapshots, start limits, quarantine, environments, what is known of heads, and drained clusters."""

    def __init__(
        self,
        specs: Sequence[ClusterSpec],
        live: LiveJobs,
        *,
        failed_setups: Mapping[str, Mapping[str, FailedSetup]],
        witnesses: Mapping[str, Witness | None],
        most_starts: int,
        quarantine: QuarantineRules,
        executors: Mapping[str, Capabilities],
    ) -> None:
        self._executors = executors
        names = [spec.name for spec in specs]
        self.specs = {spec.name: spec for spec in specs}
        self._live = live
        self._seen = {name: ClusterSnapshot(name=name) for name in names}
        self.start_limits = StartLimits(names, most=most_starts)
        self.quarantine = Quarantine(names, quarantine)
        #: Environments that a cluster could not set up, by `env_key`.
        self._failed = {name: dict(failed_setups.get(name, {})) for name in names}
        self._witnesses = {name: witnesses.get(name) for name in names}
        self.drains: Mapping[str, DrainMark] = {}
        self._views: dict[str, tuple[_Made, ClusterView]] = {}
        self._completed: dict[str, tuple[tuple[object, ...], ClusterSnapshot]] = {}

    def probed(self, snapshot: ClusterSnapshot) -> None:
        """Take note of what was seen of a cluster."""
        self._seen[snapshot.name] = snapshot

    def seen(self, name: str) -> ClusterSnapshot:
        """Return what was last seen of a cluster, without what the leader knows besides."""
        return self._seen[name]

    def head_seen(self, name: str, head: Witness, *, is_open: bool) -> bool:
        """Take note of a look at the addresses of a head; tell whether it is news."""
        before = self._witnesses[name]
        self._witnesses[name] = after_head_look(before, head, is_open=is_open)
        return self._witnesses[name] != before

    def refusal_counts(self, job: Job) -> bool:
        """Tell whether refused connections are evidence that the head of a job is gone."""
        name = job.cluster or ""
        return refusal_counts(self._witnesses[name], self.specs[name], job)

    def is_drained(self, name: str) -> bool:
        """Tell whether a cluster gets no new jobs: a mark goes before the configuration."""
        mark = self.drains.get(name)
        return self.specs[name].drained if mark is None else mark.drained

    # -- environments

    def setup_failed(self, job: Job, reason: str, *, now: float) -> bool:
        """Note that a job's environment cannot be set up on its cluster; tell whether that is news."""
        assert job.cluster is not None
        key, known = env_key(job.spec), self._failed[job.cluster]
        is_news = key not in known
        valid = {each: failed for each, failed in known.items() if each != key and failed.until > now}
        spec, session_name = self.specs[job.cluster], self._seen[job.cluster].session_name
        valid[key] = failed_setup(reason, spec, session_name, now=now)
        self._failed[job.cluster] = dict(list(valid.items())[-MOST_REMEMBERED:])
        return is_news

    def setup_worked(self, job: Job) -> None:
        """Take note that a job's driver has started: its environment is there."""
        known = self._failed.get(job.cluster or "")
        if known:
            self._failed[job.cluster or ""] = {
                key: failed for key, failed in known.items() if key != env_key(job.spec)
            }

    # -- what the planner sees

    def snapshots(self, *, now: float) -> dict[str, ClusterSnapshot]:
        """Return every cluster as it is published."""
        healthy = [name for name, seen in self._seen.items() if seen.health is Health.HEALTHY]
        suspects = set(self.quarantine.suspects()).intersection(healthy)
        complete = {name: self._complete(name, seen) for name, seen in self._seen.items()}
        for name in suspects:
            here = self._live.on(name).jobs.values()
            held = self.quarantine.allowance(name, healthy, here, now=now)
            if held is not None:
                complete[name] = replace(complete[name], throttle=held.jobs, throttle_reason=held.reason)
        return complete

    def views(self, *, now: float) -> tuple[ClusterView, ...]:
        """Return every cluster as the planner sees it."""
        world = World(
            specs=tuple(self.specs.values()),
            snapshots=self.snapshots(now=now),
            live=self._live,
            drains=self.drains,
            executors=self._executors,
            now=now,
        )
        return tuple(self._view(spec, world) for spec in world.specs)

    def _complete(self, name: str, seen: ClusterSnapshot) -> ClusterSnapshot:
        """Add what the leader knows to what was seen; the same object until one of them changes."""
        limit, failed, witness = self.start_limits.of(name), self._failed[name], self._witnesses[name]
        warm = self._live.warm(name, seen.session_name)
        known = self._completed.get(name)
        made_of = seen, limit, failed, witness
        if known is not None and all(map(is_, known[0], made_of)) and known[1].warm == warm:
            return known[1]
        complete = replace(
            seen,
            start_limit=limit.starts,
            start_s=limit.shortest_s,
            warm=warm,
            failed_setups=failed,
            witness=witness,
        )
        self._completed[name] = made_of, complete
        return complete

    def _view(self, spec: ClusterSpec, world: World) -> ClusterView:
        """Return the view that was made before, where nothing has changed since."""
        snapshot = world.snapshots[spec.name]
        made_of = snapshot, self._live.on(spec.name).version, world.drains.get(spec.name)
        known = self._views.get(spec.name)
        is_the_same = known is not None and known[0][0] is snapshot and known[0][1:] == made_of[1:]
        if known is not None and is_the_same and not snapshot.failed_setups:  # those are forgotten with time
            return known[1]
        view = cluster_view(spec, world)
        self._views[spec.name] = made_of, view
        return view
