"""Everything that is done with one cluster: send, look, decide, stop. Nothing here waits for another one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ray_multicluster_scheduler.asyncio_tools import cancel_all, repeat, together
from ray_multicluster_scheduler.cluster_health.isolation import Alone
from ray_multicluster_scheduler.core.flow.poll_interval import look_interval_s
from ray_multicluster_scheduler.core.lifecycle.observe import Act, Conclusion, interpret
from ray_multicluster_scheduler.core.lifecycle.retry import decide_retry
from ray_multicluster_scheduler.core.lifecycle.stopping import Presence, is_unwanted
from ray_multicluster_scheduler.core.lifecycle.transitions import after_failure, move, replace_silent, stopped
from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.context import EngineContext
from ray_multicluster_scheduler.engine.forget import Forgetter
from ray_multicluster_scheduler.engine.logs import LogReader
from ray_multicluster_scheduler.engine.look import Look, Looker
from ray_multicluster_scheduler.engine.rules import observe_rules, retry_rules
from ray_multicluster_scheduler.engine.send import Sender
from ray_multicluster_scheduler.engine.setups import FailedSetups
from ray_multicluster_scheduler.engine.stops import Stops
from ray_multicluster_scheduler.engine.sweep import Sweeper
from ray_multicluster_scheduler.engine.throttles import Throttles
from ray_multicluster_scheduler.errors import ClusterError
from ray_multicluster_scheduler.model.cluster import ClusterSpec, Health
from ray_multicluster_scheduler.model.execution import StartRequest
from ray_multicluster_scheduler.model.failure import FailureKind
from ray_multicluster_scheduler.model.job import Job, Transition
from ray_multicluster_scheduler.model.states import FINAL, JobState

#: A send that Ray refused with a server error is repeated this often before another cluster is tried.
MAX_REFUSED_SENDS = 3
#: The cluster's whole job list is read once in so many probes, more often while there are strays or it cannot
#: be read; and never for more than a twentieth of the time.
SWEEP_PROBES = 12
#: A list that cannot be read is tried again so often at the pace of probes: after that it may be too long.
QUICK_SWEEPS = 3
SWEEP_REST = 20
#: Between two rounds of deletes.
FORGET_PAUSE_S = 0.2
#: The cluster is gone or silent, with all its jobs: they are started anew one after another.
_WHOLE_CLUSTER = frozenset({FailureKind.LOST, FailureKind.SILENT})

_Key = tuple[str, int]
#: The moves that follow for a job, and the log of an attempt that has ended.
_Outcome = tuple[Sequence[Transition], str | None]


class ClusterWorker:
    """The loop of one cluster; `step` is one pass."""

    def __init__(
        self,
        context: EngineContext,
        board: Board,
        spec: ClusterSpec,
        throttles: Throttles,
        setups: FailedSetups,
    ) -> None:
        connection = context.connections[spec.name]
        executor = connection.executor
        self._context = context
        self._board = board
        self._throttles = throttles
        self._setups = setups
        self.name = spec.name
        self._observe_rules = observe_rules(context.settings)
        self._retry_rules = retry_rules(context.settings)
        self._sender = Sender(context, board, spec, connection)
        self._looker = Looker(context, spec, connection)
        self._stops = Stops(context, executor)
        self._logs = LogReader(context, executor)
        self._sweeper = Sweeper(context, board, spec.name, executor, self._stops)
        self._forgetter = Forgetter(context, spec.name, executor)
        self._sending: dict[str, asyncio.Task[None]] = {}
        #: Attempts that this leader placed and has not tried to send: nothing can be there yet.
        self._fresh: dict[_Key, StartRequest] = {}
        self._refusals: dict[_Key, list[str]] = {}
        #: Monotonic time of the next sweep.
        self._sweep_at = float("-inf")
        #: Sweeps that failed, one after the other.
        self._unread = 0
        self._tidy = asyncio.Event()
        self._strays: frozenset[str] = frozenset()
        self._looked_at = float("-inf")
        self._look_took_s = 0.0
        self._wake = asyncio.Event()
        #: Set once this leader knows how the jobs of this cluster are.
        self.looked = asyncio.Event()

    def placed_now(self, job: Job, request: StartRequest) -> None:
        """Take note of a job that was placed here in this very leadership: it can be sent without a look."""
        self._fresh[_key(job)] = request
        self._wake.set()

    def look_now(self) -> None:
        """Do not wait for the next look: somebody wants a job stopped, or the cluster has changed."""
        self._looked_at = float("-inf")
        self._wake.set()

    def changed(self) -> None:
        """Take note that the cluster is not what it was: jobs that were given up may be back with it."""
        self._sweep_soon()
        self.look_now()

    async def run(self) -> None:
        """Step when woken, and at the pace of what is going on; cancel to end."""
        work = Alone(self.name, "handling its jobs", self._context.watch.reporter(self.name, "worker"))
        tidy = Alone(self.name, "tidying up there", lambda _: None)  # jobs do not depend on it
        try:
            await together(
                [
                    repeat(lambda: work.run(self.step), self._wake, lambda: work.pause_s(self._pause_s())),
                    repeat(
                        lambda: tidy.run(self.tidy), self._tidy, lambda: tidy.pause_s(self._tidy_pause_s())
                    ),
                ]
            )
        finally:
            await cancel_all(self._sending.values())

    async def step(self) -> None:
        """Send what is placed; when it is time, look at what is there, write what follows, ask for stops."""
        self._reap()
        jobs = [job for job in self._board.on(self.name) if job.submission_id not in self._sending]
        known = [job for job in jobs if _key(job) not in self._fresh]
        for job in jobs:
            if _key(job) in self._fresh:
                await self._begin(job)
        if self._pause_s() <= 0:
            self._looked_at = self._context.clock.monotonic()
            if not known:
                self._looker.rest()
                self.looked.set()
            elif await self._reconcile(known):
                await self._stop_unwanted()
                self.looked.set()

    # -- sending

    async def _begin(self, job: Job) -> None:
        fresh = self._fresh.pop(_key(job), None)
        end = stopped(job, Presence.UNKNOWN if fresh is None else Presence.NOT_SENT)
        if end is not None:
            await self._board.apply([end])
            return
        self._sending[job.submission_id] = asyncio.create_task(self._send(job, fresh))

    async def _send(self, job: Job, fresh: StartRequest | None) -> None:
        """Send one job. What comes of it waits for the next look, which is near while a job is starting."""
        refusal = await self._sender.send(job, fresh)
        if refusal is not None:
            self._refusals.setdefault(_key(job), []).append(refusal)

    def _reap(self) -> None:
        """Forget what has ended. A bug in a send fails this step, and a lost lease ends the leadership."""
        for submission_id, task in list(self._sending.items()):
            if task.done():
                del self._sending[submission_id]
                task.result()
        here = self._board.on(self.name)
        keys = {_key(job) for job in here}
        self._fresh = {key: request for key, request in self._fresh.items() if key in keys}
        self._refusals = {key: said for key, said in self._refusals.items() if key in keys}
        self._stops.keep_only(self._strays | {job.remote_id or "" for job in here})

    # -- deciding

    async def _reconcile(self, jobs: Sequence[Job]) -> bool:
        """Look at these jobs and write what follows; tell whether the cluster answered."""
        began_at = self._context.clock.monotonic()
        look = await self._looker.look(jobs)
        self._look_took_s = self._context.clock.monotonic() - began_at
        conclusions = [(job, self._interpret(job, look)) for job in jobs]
        doubtful = [job for job, conclusion in conclusions if conclusion.act is Act.CONFIRM]
        if doubtful:
            again = await self._looker.confirm(doubtful, look)
            conclusions = [
                (job, self._interpret(job, again) if conclusion.act is Act.CONFIRM else conclusion)
                for job, conclusion in conclusions
            ]
        news = [(job, conclusion) for job, conclusion in conclusions if conclusion.act is not Act.KEEP]
        await together(self._follow(job, conclusion) for job, conclusion in news)
        return look.answered

    def _interpret(self, job: Job, look: Look) -> Conclusion:
        observation = look.observation(job, stopping_s=self._stops.stopping_s(job.remote_id or ""))
        return interpret(job, observation, rules=self._observe_rules, now=self._context.clock.now())

    async def _follow(self, job: Job, conclusion: Conclusion) -> None:
        """Write what follows for one job, with its log when the attempt has ended."""
        moves, log = await self._outcome(job, conclusion)
        for transition in moves:
            self._context.crash_point(f"seen:{transition.new.value}")
        moved = await self._board.apply(moves, log=log)
        if conclusion.act is Act.REPLACE:
            self._sweep_soon()  # it may run on: it is looked for as soon as the cluster answers
        if moved and log is not None and job.remote_id is not None:
            self._forgetter.ended(job.remote_id)
            if self._forgetter.is_due:
                self._tidy.set()

    async def _outcome(self, job: Job, conclusion: Conclusion) -> _Outcome:
        if conclusion.act is Act.SEND:
            return await self._send_again(job)
        if conclusion.act in {Act.FAIL, Act.REPLACE}:
            return await self._failed(job, conclusion)
        if conclusion.act is not Act.MOVE:
            return (), None
        assert conclusion.state is not None
        log = await self._logs.read(job) if conclusion.state in FINAL else None
        if conclusion.state in {JobState.RUNNING, JobState.SUCCEEDED}:
            self._setups.worked(job)
        if conclusion.state is JobState.SUCCEEDED:
            self._throttles.ended(job, None)
        return (move(job, conclusion.state, conclusion.reason, **conclusion.changes),), log

    async def _send_again(self, job: Job) -> _Outcome:
        end = stopped(job, Presence.NOT_RECEIVED)
        if end is not None:
            return (end,), None
        refusals = self._refusals.get(_key(job), [])
        if len(refusals) >= MAX_REFUSED_SENDS:
            reason = f"cluster {self.name!r} refused it {len(refusals)} times: {refusals[-1]}"
            return await self._failed(
                job, Conclusion(act=Act.FAIL, failure=FailureKind.REFUSED, reason=reason)
            )
        await self._begin(job)
        return (), None

    async def _failed(self, job: Job, conclusion: Conclusion) -> _Outcome:
        assert conclusion.failure is not None
        kind, context = conclusion.failure, self._context
        elsewhere = True
        if kind is FailureKind.NO_ENVIRONMENT:
            await self._setups.failed(job, self._board.without_secrets(conclusion.reason, job))
            elsewhere = self._setups.elsewhere(job, self._throttles.snapshots())
        retry = decide_retry(
            job,
            kind,
            rules=self._retry_rules,
            jitter=context.jitter(),
            least_delay_s=self._throttles.next_turn_s() if kind in _WHOLE_CLUSTER else 0.0,
            elsewhere=elsewhere,
        )
        if conclusion.act is Act.REPLACE:
            return replace_silent(job, conclusion, retry, now=context.clock.now()), None
        self._throttles.ended(job, kind)
        log = None if kind is FailureKind.LOST else await self._logs.read(job)
        return after_failure(job, conclusion, retry, now=context.clock.now()), log

    # -- stopping

    async def _stop_unwanted(self) -> None:
        """Ask Ray to stop what the user stopped and what ran too long."""
        now = self._context.clock.now()
        unwanted = [job.remote_id or "" for job in self._board.on(self.name) if is_unwanted(job, now=now)]
        await together(self._stops.ask(remote_id) for remote_id in unwanted)

    # -- tidying up

    async def tidy(self) -> None:
        """Sweep when it is time, and delete ended jobs that the cluster need not remember any longer."""
        clock, seen = self._context.clock, self._context.watch.snapshots()[self.name]
        if seen.health is Health.HEALTHY and clock.monotonic() >= self._sweep_at:
            self._sweep_at = float("inf")
            pause_s = await self._sweep()
            # Whoever asked for one meanwhile means what this one has not seen.
            self._sweep_at = min(self._sweep_at, clock.monotonic() + pause_s)
        await self._forgetter.step()

    async def _sweep(self) -> float:
        """Look for strays; return how long to wait before the next sweep."""
        interval_s, began_at = self._context.settings.probe_interval_s, self._context.clock.monotonic()
        try:
            swept = await self._sweeper.sweep()
        except ClusterError:  # what is wrong with it is for the probes to tell
            self._unread += 1
            return interval_s if self._unread <= QUICK_SWEEPS else SWEEP_PROBES * interval_s
        self._unread = 0
        self._strays = swept.suspects
        self._forgetter.found(swept.ended)
        rest_s = SWEEP_REST * (self._context.clock.monotonic() - began_at)
        return max(rest_s, interval_s if self._strays else SWEEP_PROBES * interval_s)

    def _sweep_soon(self) -> None:
        self._sweep_at, self._unread = float("-inf"), 0
        self._tidy.set()

    def _tidy_pause_s(self) -> float:
        if self._forgetter.is_due:
            return FORGET_PAUSE_S
        left_s = self._sweep_at - self._context.clock.monotonic()
        return max(left_s, self._context.settings.probe_interval_s)

    # -- pace

    def _pause_s(self) -> float:
        """Return how long it is until the next look."""
        return max(0.0, self._looked_at + self._interval_s() - self._context.clock.monotonic())

    def _interval_s(self) -> float:
        settings = self._context.settings
        return look_interval_s(
            self._board.on(self.name),
            now=self._context.clock.now(),
            look_took_s=self._look_took_s,
            poll_interval_s=settings.poll_interval_s,
            probe_interval_s=settings.probe_interval_s,
        )


def _key(job: Job) -> _Key:
    return job.submission_id, job.attempt
