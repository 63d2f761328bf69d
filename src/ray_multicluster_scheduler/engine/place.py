"""Place: take what waits, look at every cluster, decide, write the decision down."""

from __future__ import annotations

from dataclasses import asdict

from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.throttles import Throttles
from ray_multicluster_scheduler.model.decision import Placement
from ray_multicluster_scheduler.model.job import Job, Target, Transition
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.policy.plan import PlanRules, plan
from ray_multicluster_scheduler.policy.remote_request import compose_submit
from ray_multicluster_scheduler.policy.views import World, cluster_views, held_by_user, queued_job


class Placer:
    """One `step` places all that can be placed now."""

    def __init__(self, context: EngineContext, board: Board, throttles: Throttles, rules: PlanRules) -> None:
        self._context = context
        self._board = board
        self._throttles = throttles
        self._rules = rules

    async def step(self) -> int:
        """Return how many jobs were placed."""
        await self._end_blocked()
        context, now = self._context, self._context.clock.now()
        waiting = await context.offload(context.store.runnable, now=now)  # 1. what waits
        if not waiting:
            return 0
        views = cluster_views(await self._world())  # 2. one frozen view of every cluster
        decided = plan(  # 3. decide: pure, no await
            [queued_job(job, context.config.clusters) for job in waiting],
            views,
            now=now,
            rules=self._rules,
            in_use=held_by_user(self._board.all()),
        )
        jobs = {job.submission_id: job for job in waiting}
        sessions = {view.spec.name: view.snapshot.session_name for view in views}
        context.crash_point("place:decided")
        moved = await self._board.apply(  # 4. compare-and-set; losers stay queued
            [self._placed(jobs[p.submission_id], p, sessions[p.cluster]) for p in decided.placements]
        )
        context.crash_point("place:written")
        return len(moved)

    async def _world(self) -> World:
        context = self._context
        return World(
            specs=context.config.clusters,
            snapshots=self._throttles.snapshots(),
            live=self._board.all(),
            drains=await context.offload(context.store.drained),
            warm=self._board.warm(),
            start_limits={
                spec.name: context.settings.max_starts_in_flight for spec in context.config.clusters
            },
        )

    async def _end_blocked(self) -> None:
        """End the jobs that can never start: stopped by the user, failed dependency, waited too long."""
        context, now = self._context, self._context.clock.now()
        blocked = await context.offload(context.store.blocked, now=now)
        await self._board.apply([_ended(job, reason) for job, reason in blocked])

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
        )
        return Transition(
            submission_id=job.submission_id,
            expected=JobState.QUEUED,
            attempt=job.attempt,
            new=JobState.PLACED,
            reason=f"placed on {placement.cluster!r}: {placement.sentence}",
            changes={"cluster": placement.cluster, "session_name": session_name},
            attempt_changes={
                "entrypoint": request.entrypoint,
                "runtime_env": request.runtime_env,
                "decision": asdict(placement),
            },
        )


def _ended(job: Job, reason: str) -> Transition:
    state = JobState.STOPPED if job.target is Target.STOPPED else JobState.FAILED
    return Transition(
        submission_id=job.submission_id,
        expected=JobState.QUEUED,
        attempt=job.attempt,
        new=state,
        reason=reason,
    )
