"""Everything that is done with one cluster: send, look, decide, stop. Nothing here waits for another one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.look import Look, Looker
from ray_multicluster_scheduler.engine.send import Sender
from ray_multicluster_scheduler.engine.tasks import cancel_all, repeat
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.job import Job, Target, Transition
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.policy.judge import Act, JudgeRules, Verdict, judge, timed_out
from ray_multicluster_scheduler.policy.moves import after_failure, move, replace_silent
from ray_multicluster_scheduler.policy.redact import redact_text, secrets_of
from ray_multicluster_scheduler.policy.retry import FailureKind, RetryRules, decide_retry

log = logging.getLogger(__name__)

#: A stop is asked for again after this, in case Ray forgot it.
STOP_AGAIN_S = 5.0
#: A send that Ray refused with a server error is repeated this often before another cluster is tried.
MAX_REFUSED_SENDS = 3


class ClusterWorker:
    """The loop of one cluster; `step` is one pass."""

    def __init__(
        self,
        context: EngineContext,
        board: Board,
        spec: ClusterSpec,
        *,
        judge_rules: JudgeRules,
        retry_rules: RetryRules,
    ) -> None:
        self._context = context
        self._board = board
        self.name = spec.name
        self._api = context.apis[spec.name]
        self._judge_rules = judge_rules
        self._retry_rules = retry_rules
        self._sender = Sender(context, board, spec, self._api)
        self._looker = Looker(spec, self._api, context.clock)
        self._sending: dict[str, asyncio.Task[None]] = {}
        #: Attempts that this leader placed and has not tried to send: nothing can be there yet.
        self._fresh: set[tuple[str, int]] = set()
        self._refusals: dict[tuple[str, int], list[str]] = {}
        self._stop_asked: dict[str, float] = {}
        self.wake = asyncio.Event()

    def placed_now(self, job: Job) -> None:
        """Take note of a job that was placed here in this very leadership: it can be sent without a look."""
        self._fresh.add((job.submission_id, job.attempt))
        self.wake.set()

    async def run(self) -> None:
        """Step when woken, and at the pace of what is going on; cancel to end."""
        try:
            await repeat(self.step, self.wake, self._pause_s)
        finally:
            await cancel_all(self._sending.values())

    async def step(self) -> None:
        """Send what is placed, look at what is there, write what follows, ask for stops."""
        self._reap()
        jobs = [job for job in self._board.on(self.name) if job.submission_id not in self._sending]
        fresh = [job for job in jobs if (job.submission_id, job.attempt) in self._fresh]
        for job in fresh:
            await self._begin(job)
        known = [job for job in jobs if job not in fresh]
        if not known:
            return
        look = await self._looker.look(known, self._context.watch.snapshots()[self.name])
        moves = await asyncio.gather(*(self._settle(job, look) for job in known))
        self._context.crash_point("reconcile:seen")
        await self._board.apply([transition for group in moves for transition in group])
        if look.answered:
            await self._stop_unwanted()

    async def drain_sends(self) -> None:
        """Wait until no send is under way."""
        await asyncio.gather(*self._sending.values())

    # -- sending

    async def _begin(self, job: Job) -> None:
        key = (job.submission_id, job.attempt)
        look_first = key not in self._fresh
        self._fresh.discard(key)
        if job.target is Target.STOPPED and not look_first:
            await self._board.apply([move(job, JobState.STOPPED, "stopped by the user before it was sent")])
            return
        self._sending[job.submission_id] = asyncio.create_task(self._send(job, look_first=look_first))

    async def _send(self, job: Job, *, look_first: bool) -> None:
        refusal = await self._sender.send(job, look_first=look_first)
        if refusal is not None:
            self._refusals.setdefault((job.submission_id, job.attempt), []).append(refusal)
        self.wake.set()

    def _reap(self) -> None:
        """Forget sends that ended; a bug in one of them ends the engine, loudly."""
        for submission_id, task in list(self._sending.items()):
            if task.done():
                del self._sending[submission_id]
                task.result()

    # -- deciding

    async def _settle(self, job: Job, look: Look) -> Sequence[Transition]:
        now, sight = self._context.clock.now(), look.sight(job)
        verdict = judge(job, sight, rules=self._judge_rules, now=now)
        if verdict.act is Act.CONFIRM:
            sight = await self._looker.confirm(job, sight)
            verdict = judge(job, sight, rules=self._judge_rules, now=now)
        if verdict.act is Act.MOVE:
            assert verdict.state is not None
            if verdict.state in FINAL:
                await self._keep_log(job)
            return (move(job, verdict.state, verdict.reason, **verdict.changes),)
        if verdict.act is Act.SEND:
            return await self._send_again(job)
        if verdict.act in {Act.FAIL, Act.REPLACE}:
            return await self._failed(job, verdict)
        return ()

    async def _send_again(self, job: Job) -> Sequence[Transition]:
        if job.target is Target.STOPPED:
            return (move(job, JobState.STOPPED, "stopped by the user; the cluster never received it"),)
        refusals = self._refusals.get((job.submission_id, job.attempt), [])
        if len(refusals) >= MAX_REFUSED_SENDS:
            reason = f"cluster {self.name!r} refused it {len(refusals)} times: {refusals[-1]}"
            return await self._failed(job, Verdict(act=Act.FAIL, failure=FailureKind.REFUSED, reason=reason))
        await self._begin(job)
        return ()

    async def _failed(self, job: Job, verdict: Verdict) -> Sequence[Transition]:
        kind = verdict.failure or FailureKind.LOST
        retry = decide_retry(job, kind, rules=self._retry_rules, jitter=self._context.jitter())
        now = self._context.clock.now()
        if verdict.act is Act.REPLACE:
            return replace_silent(job, verdict, retry, now=now)
        if kind is not FailureKind.LOST:
            await self._keep_log(job)
        reason = redact_text(verdict.reason, secrets_of(job.spec.runtime_env))
        clean = Verdict(act=verdict.act, failure=kind, reason=reason, changes=verdict.changes)
        return after_failure(job, clean, retry, now=now)

    async def _keep_log(self, job: Job) -> None:
        """Keep the end of the log, so that history outlives the cluster; without it the job still ends."""
        if job.remote_id is None:
            return
        try:
            text = await self._api.job_logs(job.remote_id)
        except ClusterError as error:
            log.warning("log not kept", extra={"job": job.submission_id, "why": str(error)})
            return
        context, epoch = self._context, self._board.lease.epoch
        kept = bounded(text, context.settings.log_keep_bytes)
        await context.offload(context.store.save_log, job.submission_id, job.attempt, kept, epoch=epoch)

    # -- stopping

    async def _stop_unwanted(self) -> None:
        """Ask Ray to stop what the user stopped and what ran too long."""
        now = self._context.clock.now()
        unwanted = [
            job
            for job in self._board.on(self.name)
            if job.state in {JobState.SUBMITTED, JobState.RUNNING}
            and (job.target is Target.STOPPED or timed_out(job, now=now))
        ]
        await asyncio.gather(*(self._stop(job) for job in unwanted))

    async def _stop(self, job: Job) -> None:
        assert job.remote_id is not None
        now = self._context.clock.monotonic()
        if now - self._stop_asked.get(job.remote_id, float("-inf")) < STOP_AGAIN_S:
            return
        self._stop_asked[job.remote_id] = now
        self._context.crash_point("stop:before-post")
        try:
            await self._api.stop_job(job.remote_id)
        except ClusterError as error:
            log.warning("stop not delivered", extra={"job": job.submission_id, "why": str(error)})
        self.wake.set()

    # -- pace

    def _pause_s(self) -> float:
        """Return how long to wait before the next look: short while something is about to change."""
        jobs, settings = self._board.on(self.name), self._context.settings
        if not jobs:
            return settings.probe_interval_s
        busy = any(job.state is not JobState.RUNNING or job.target is Target.STOPPED for job in jobs)
        return settings.poll_interval_s / 2 if busy else settings.poll_interval_s


def bounded(text: str, keep_bytes: int) -> str:
    """Return the end of a log, saying so when the beginning was cut."""
    raw = text.encode()
    if len(raw) <= keep_bytes:
        return text
    cut = len(raw) - keep_bytes
    return f"[the first {cut} bytes of this log were not kept]\n" + raw[cut:].decode(errors="replace")
