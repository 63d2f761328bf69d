"""What the leader remembers of jobs that died quickly. A new leader starts with an empty record."""

from __future__ import annotations

from dataclasses import replace

from ray_multicluster_scheduler.core.flow.quarantine import Streak, ThrottleRules, after_end, throttle
from ray_multicluster_scheduler.core.flow.token_bucket import TokenBucket
from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.setups import FailedSetups
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, Health
from ray_multicluster_scheduler.model.failure import FailureKind
from ray_multicluster_scheduler.model.job import Job


class Throttles:
    """Limits what black holes are given and how fast lost jobs are started anew."""

    def __init__(
        self,
        context: EngineContext,
        board: Board,
        setups: FailedSetups,
        rules: ThrottleRules,
        bucket: TokenBucket,
    ) -> None:
        self._context = context
        self._board = board
        self._setups = setups
        self._rules = rules
        self._bucket = bucket
        self._streaks = {spec.name: Streak() for spec in context.config.clusters}

    def ended(self, job: Job, kind: FailureKind | None) -> None:
        """Take note of the end of an attempt; `kind` None: it ended well."""
        assert job.cluster is not None
        now, before = self._context.clock.now(), self._streaks[job.cluster]
        self._streaks[job.cluster] = after_end(before, job, kind, now=now, rules=self._rules)

    def next_turn_s(self) -> float:
        """Return how long the next lost job has to wait for its new start, and count it."""
        now = self._context.clock.monotonic()
        wait_s, self._bucket = self._bucket.wait_s(now), self._bucket.taken(now)
        return wait_s

    def snapshots(self) -> dict[str, ClusterSnapshot]:
        """Return what was last seen of every cluster, with what it may be given and what it cannot set up."""
        seen, now = self._context.watch.snapshots(), self._context.clock.now()
        able = {name: self._streaks[name] for name, each in seen.items() if each.health is Health.HEALTHY}
        live = self._board.all()
        held = {name: throttle(name, able, live, now=now, rules=self._rules) for name in able}
        changed = dict(seen)
        for name, found in held.items():
            if found is not None:
                changed[name] = replace(seen[name], throttle=found.allowance, throttle_reason=found.reason)
        for name, failed in self._setups.all():
            changed[name] = replace(changed[name], failed_setups=failed)
        return changed
