"""Place: take what waits, look at every cluster, decide, write the decision down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from ray_multicluster_scheduler.core.lifecycle.attempt_request import compose_submit
from ray_multicluster_scheduler.core.lifecycle.transitions import ended_in_queue, placed
from ray_multicluster_scheduler.core.placement.capacity import open_rooms
from ray_multicluster_scheduler.core.placement.impossible import has_failed_everywhere
from ray_multicluster_scheduler.core.placement.inputs import World, cluster_views, held_by_user, last_start_at
from ray_multicluster_scheduler.core.placement.plan import placements
from ray_multicluster_scheduler.core.placement.preference import patience_s
from ray_multicluster_scheduler.core.placement.rules import PlanRules
from ray_multicluster_scheduler.core.placement.wait_reasons import Wait, waits
from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.outlook import Outlook
from ray_multicluster_scheduler.engine.paces import Paces
from ray_multicluster_scheduler.engine.telling import tell_decisions
from ray_multicluster_scheduler.engine.waiting import WaitingJobs
from ray_multicluster_scheduler.model.decision import ClusterView, Placement
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.job import Job, Transition
from ray_multicluster_scheduler.model.states import JobState

#: Jobs of one kind that are ended in one transaction; the rest is ended in the next pass.
MOST_ENDED = 1_000


class Placer:
    """One `step` places all that can be placed now."""

    def __init__(
        self,
        context: EngineContext,
        board: Board,
        waiting: WaitingJobs,
        outlook: Outlook,
        paces: Paces,
        rules: PlanRules,
    ) -> None:
        self._context = context
        self._board = board
        self._waiting = waiting
        self._outlook = outlook
        self._paces = paces
        self._rules = rules
        #: What the last pass has composed, by submission id.
        self._requests: dict[str, StartRequest] = {}

    def request_of(self, job: Job) -> StartRequest:
        """Return what is to be sent for a job that the last pass has placed."""
        return self._requests[job.submission_id]

    async def step(self) -> int:
        """Return how many jobs were placed."""
        await self._end_blocked()
        context, now = self._context, self._context.clock.now()
        if not self._waiting.lines(now=now):  # 1. what waits
            return 0
        views = cluster_views(await self._world())  # 2. one frozen view of every cluster
        await self._end_unworkable(views)
        in_use = held_by_user(self._board.all())
        lines = self._waiting.lines(now=now)
        decided = list(  # 3. decide: pure, no await
            placements(lines, views, now=now, rules=self._rules, in_use=in_use)
        )
        self._paces.planned(decided, views)
        tell_decisions(decided)
        context.crash_point("place:decided")
        jobs = await self._whole(decided)
        transitions = self._transitions(decided, jobs, views)
        moved = await self._board.apply(transitions, known=jobs)  # 4. compare-and-set
        context.crash_point("place:written")
        return len(moved)

    async def waits(self) -> tuple[Wait, ...]:
        """Say why the jobs in the queue wait, by reason. Not on the loop: there may be many kinds of jobs."""
        now = self._context.clock.now()
        world, queue = await self._world(), self._waiting.queue(now=now)
        in_use, rules = held_by_user(world.live), self._rules
        return await asyncio.to_thread(
            lambda: waits(queue, cluster_views(world), now=now, rules=rules, in_use=in_use)
        )

    def patience_ends(self, *, now: float) -> float | None:
        """Return when jobs will stop to wait for a preferred cluster; None: none does, or nothing ends it."""
        lines = self._waiting.lines(now=now)
        preferred = {name for line in lines if (name := line.sample.preferred_cluster) is not None}
        starts = [at for name in preferred if (at := last_start_at(self._board.on(name))) is not None]
        if not starts:
            return None
        lasts_s = patience_s(self._outlook.snapshots().values(), self._rules)
        return min((at + lasts_s for at in starts if at + lasts_s > now), default=None)

    async def _whole(self, decided: Sequence[Placement]) -> dict[str, Job]:
        """Read the whole jobs of those that got a place; who waits no more is forgotten."""
        context, ids = self._context, [placement.submission_id for placement in decided]
        found = await context.offload(context.store.get_many, ids) if ids else {}
        waiting = {each: job for each, job in found.items() if job.state is JobState.QUEUED}
        self._waiting.forget([each for each in ids if each not in waiting])
        return waiting

    def _transitions(
        self, decided: Sequence[Placement], jobs: Mapping[str, Job], views: Sequence[ClusterView]
    ) -> list[Transition]:
        self._requests = {}
        sessions = {view.spec.name: view.snapshot.session_name for view in views}
        return [
            self._placed(jobs[placement.submission_id], placement, sessions[placement.cluster])
            for placement in decided
            if placement.submission_id in jobs
        ]

    async def _world(self) -> World:
        context = self._context
        return World(
            specs=context.config.clusters,
            snapshots=self._outlook.snapshots(),
            live=self._board.all(),
            drains=await context.offload(context.store.drained),
            now=context.clock.now(),
        )

    async def _end_blocked(self) -> None:
        """End the jobs that can never start: stopped by the user, failed dependency, waited too long."""
        context, now = self._context, self._context.clock.now()
        blocked = await context.offload(context.store.blocked, now=now)
        await self._board.apply([ended_in_queue(job, reason) for job, reason in blocked])

    async def _end_unworkable(self, views: Sequence[ClusterView]) -> None:
        """End the jobs whose environment has failed wherever it could be tried."""
        context, rooms = self._context, open_rooms(views)
        picky = any(view.failing or view.ray_needs for view in views)
        for line in self._waiting.lines(now=context.clock.now()):
            asked = picky or line.sample.ray_needs
            reason = has_failed_everywhere(line.sample, rooms, self._rules) if asked else None
            if reason is not None:
                ids = list(islice(line.waiters, MOST_ENDED))
                jobs = await context.offload(context.store.get_many, ids)
                why = f"no cluster can take its environment: {reason}"
                await self._board.apply([ended_in_queue(job, why) for job in jobs.values()], known=jobs)

    def _placed(self, job: Job, placement: Placement, session_name: str | None) -> Transition:
        """Write down the intent in full, before anything is sent: cluster, Ray's id, environment, reasons."""
        context = self._context
        target = context.config.cluster(placement.cluster)
        request = compose_submit(
            job.submission_id,
            job.spec,
            job.attempt + 1,
            target,
            context.config.clusters,
            origin=context.store.store_id,
            seq=job.seq,
        )
        self._requests[job.submission_id] = request
        return placed(
            job,
            request,
            f"placed on {placement.cluster!r}: {placement.sentence}",
            cluster=placement.cluster,
            executor=context.connections[placement.cluster].executor.name,
            session_name=session_name,
            decision=_record(placement),
        )


def _record(placement: Placement) -> dict[str, Any]:
    """Return a decision as plain values, for `explain`. (`asdict` takes twenty times as long.)"""
    return {
        "submission_id": placement.submission_id,
        "cluster": placement.cluster,
        "scores": {
            name: {"total": score.total, "parts": score.parts, "prefer": score.prefer}
            for name, score in placement.scores.items()
        },
        "refusals": {
            name: {"cause": refusal.cause, "sentence": refusal.sentence, "missing": refusal.missing}
            for name, refusal in placement.refusals.items()
        },
        "sentence": placement.sentence,
    }
