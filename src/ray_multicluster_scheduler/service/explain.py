"""Why a job is where it is, and what would let it start: the planner's own words, not a second opinion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.lifecycle.attempt_request import compose_submit
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.placement.impossible import unworkable_lines
from ray_multicluster_scheduler.core.placement.inputs import (
    Fits,
    QueuedJobs,
    World,
    cluster_views,
)
from ray_multicluster_scheduler.core.placement.plan import PlanningPass, decide
from ray_multicluster_scheduler.core.placement.plan_rules import FIRST_LOOK_S, PlanRules
from ray_multicluster_scheduler.core.placement.queue import JobQueue, line_name, queue_of
from ray_multicluster_scheduler.core.placement.wait_reasons import MOST_NAMED, in_numbers, waits
from ray_multicluster_scheduler.core.placement.what_if import suggestions
from ray_multicluster_scheduler.environment.origins import origins
from ray_multicluster_scheduler.environment.redact import redact_env, redact_text, secrets_of
from ray_multicluster_scheduler.environment.setup_summary import is_setting_up
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.decision import (
    DEPENDENCIES,
    RETRY_DELAY,
    ClusterView,
    Placement,
    QueuedJob,
    Wait,
    Waiting,
)
from ray_multicluster_scheduler.model.job import Job, JobSpec, Target
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.make_views import Secrets, show_decision
from ray_multicluster_scheduler.service.views import DecisionView, EnvironmentView, Explanation, PlanView
from ray_multicluster_scheduler.store_ports import JobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One look at the whole queue and every cluster."""

    queue: tuple[QueuedJob, ...]
    views: tuple[ClusterView, ...]
    in_use: Mapping[str, Mapping[str, float]]
    now: float

    def decide(self, submission_id: str, rules: PlanRules) -> Placement | Waiting:
        """Return the decision that this pass makes about one job."""
        lines = queue_of(self.queue).lines(now=self.now)
        one_pass = PlanningPass(lines, self.views, now=self.now, rules=rules, in_use=self.in_use)
        return decide(submission_id, one_pass)


Snapshots = Mapping[str, ClusterSnapshot]
#: Waiting jobs that are read at once.
QUEUE_PAGE = 1000
#: Poll interval for snapshots: writing one sends no notification.
NAP_S = 0.05


class Explainer:
    """Answers "why?" from the store alone: any process can ask, leader or not.

    `snapshots` come from a caller that has just probed the clusters. By default the snapshots are those that
    the leader published last.
    """

    def __init__(
        self, config: Config, store: JobStore, clock: Clock, rules: PlanRules, *, loaded: Config
    ) -> None:
        """`loaded` is the configuration as it was read: a server adds to the environments of its clusters."""
        self._config = config
        self._written = {spec.name: spec.runtime_env for spec in loaded.clusters}
        self._fits = Fits(config.clusters)
        self._queued = QueuedJobs(config.clusters)
        self._secrets = Secrets(config.clusters)
        self._store = store
        self._clock = clock
        self._rules = rules

    def explain(self, submission_id: str, *, snapshots: Snapshots | None = None) -> Explanation:
        """Return state, reason and, per cluster, score parts or refusal; for a waiting job also ways out."""
        job = self._store.get(submission_id)
        told: dict[str, Any] = {"decision": None, "waits_for": None, "position": None, "suggestions": ()}
        ends = self._about_to_end(job) if job.state is JobState.QUEUED else None
        if job.state is JobState.QUEUED:
            told |= {} if ends else self._waiting(job, snapshots)
        elif attempts := self._store.attempts(submission_id, last=1):
            told["decision"] = show_decision(attempts[-1].decision)
        message = redact_text(job.reason, self._secrets.of(job))
        return Explanation(
            submission_id=submission_id,
            state=job.state,
            message=message,
            cluster=job.cluster,
            attempt=job.attempt,
            why=ends or (message if job.final else _in_one_sentence(job, message, told)),
            **told,
        )

    def plan(self, submission_id: str, spec: JobSpec, *, snapshots: Snapshots) -> PlanView:
        """Return what would happen to a job that is accepted now; nothing is stored or sent."""
        now = self._clock.now()
        job = Job(seq=2**62, submission_id=submission_id, spec=spec, accepted_at=now, changed_at=now)
        world = self._look([*self._ready(now), job], snapshots, asked=submission_id)
        decided = world.decide(submission_id, self._rules)
        return PlanView(
            cluster=decided.cluster if isinstance(decided, Placement) else None,
            decision=show_decision(decided),
            environments=self._environments(submission_id, spec),
            **self._ways_out(decided, world),
        )

    def waits(self, *, snapshots: Snapshots | None = None) -> tuple[Wait, ...]:
        """Return for each reason how many jobs wait for it: what the leader says of its queue."""
        world, queue = self._world(snapshots), JobQueue()
        ended = {job.submission_id for job, _ in self._store.blocked(now=world.now)}
        for job, needs in self._queue():
            if job.submission_id not in ended:
                queue.put(self._queued.of(job), not_before=job.not_before, needs=needs)
        return self._waits(queue, world)

    def waits_of(self, jobs: Sequence[Job], *, snapshots: Snapshots | None = None) -> tuple[Wait, ...]:
        """Like `waits`, for these jobs, which need no others, behind the first `QUEUE_PAGE` of the queue.

        What it costs does not depend on the length of the queue.
        """
        world, queue = self._world(snapshots), JobQueue()
        for job in (*self._store.runnable(now=world.now, limit=QUEUE_PAGE), *jobs):
            queue.put(self._queued.of(job))
        return self._waits(queue, world)

    def _waits(self, queue: JobQueue, world: World) -> tuple[Wait, ...]:
        views = cluster_views(world)
        for line, _ in unworkable_lines(queue.lines(now=world.now), views, self._rules):
            queue.remove(list(line.waiters))
        numbers, in_use = in_numbers(queue, now=world.now), world.live.held_by_user()
        return waits(numbers, views, now=world.now, rules=self._rules, in_use=in_use)

    def reasons(
        self, jobs: Sequence[Job], waits_of: Callable[[Sequence[Job]], Sequence[Wait]]
    ) -> dict[str, tuple[str, str]]:
        """Return for each queued job of a list why it waits, and the same in a sentence.

        `waits_of` says what those wait for that may start. A job that it does not know yet is left out.
        """
        now, queued = self._clock.now(), [job for job in jobs if job.state is JobState.QUEUED]
        needs = self._store.get_many(list({need for job in queued for need in job.spec.depends_on}))
        told: dict[str, tuple[str, str]] = {}
        ready: list[Job] = []
        for job in queued:
            needed = [needs[each] for each in job.spec.depends_on if each in needs]
            if open_needs := [each for each in needed if each.state is not JobState.SUCCEEDED]:
                told[job.submission_id] = DEPENDENCIES, self._in_need(open_needs)
            elif job.not_before > now:
                told[job.submission_id] = RETRY_DELAY, f"its next attempt is in {job.not_before - now:.0f} s"
            else:
                ready.append(job)
        if ready:
            lines = {key: (wait.reason, text) for wait in waits_of(ready) for key, text in wait.lines.items()}
            keys = {job.submission_id: self.line_of(job) for job in ready}
            told |= {each: lines[key] for each, key in keys.items() if key in lines}
        return told

    def line_of(self, job: Job) -> str:
        """Return the name of the line in which a job waits."""
        return line_name(self._queued.of(job))

    def _in_need(self, needs: Sequence[Job]) -> str:
        """Say for which jobs another one waits, or that it waits in vain."""
        for job in needs:
            if job.final:
                verb = "was stopped" if job.state is JobState.STOPPED else "has failed"
                reason = redact_text(job.reason, self._secrets.of(job))
                return f"it will fail: {job.submission_id}, which it needs, {verb} ({reason})"
        named = ", ".join(f"{job.submission_id} ({job.state.value})" for job in needs[:MOST_NAMED])
        more = f" and {len(needs) - MOST_NAMED} more" if len(needs) > MOST_NAMED else ""
        return f"it needs {named}{more}"

    def _queue(self) -> Iterator[tuple[Job, tuple[str, ...]]]:
        """Yield all waiting jobs with their open dependencies."""
        after = 0
        while page := self._store.arrivals(after=after, limit=QUEUE_PAGE):
            yield from page
            after = page[-1][0].seq

    def after_first_look(self) -> Snapshots:
        """Return the snapshots of the leader; wait while it probes all clusters for the first time."""
        ends_at = self._clock.monotonic() + FIRST_LOOK_S
        while True:
            seen = self._store.load_snapshots()
            known = all(c.name in seen and not seen[c.name].awaited for c in self._config.clusters)
            if known or self._clock.monotonic() >= ends_at:
                return seen
            self._store.wait_for_change(0, timeout_s=NAP_S)

    def _waiting(self, job: Job, snapshots: Snapshots | None) -> dict[str, Any]:
        now = self._clock.now()
        ready = self._ready(now)
        if job.submission_id not in {other.submission_id for other in ready}:
            return {"waits_for": self._waits_for(job, now)}
        world = self._look(ready, snapshots, asked=job.submission_id)
        decided = world.decide(job.submission_id, self._rules)
        return {"decision": show_decision(decided), **self._ways_out(decided, world)}

    def _ways_out(self, decided: Placement | Waiting, world: _Pass) -> dict[str, Any]:
        if isinstance(decided, Placement):
            return {"position": None, "suggestions": ()}
        (job,) = (each for each in world.queue if each.submission_id == decided.submission_id)
        found = suggestions(
            job, world.queue, world.views, now=world.now, rules=self._rules, in_use=world.in_use
        )
        return {"position": decided.position, "suggestions": tuple(each.sentence for each in found)}

    def _ready(self, now: float) -> list[Job]:
        """Return the jobs that the leader plans for: jobs that can never start are ended before."""
        ended = {job.submission_id for job, _ in self._store.blocked(now=now)}
        return [job for job in self._store.runnable(now=now) if job.submission_id not in ended]

    def _about_to_end(self, job: Job) -> str | None:
        """Say why a queued job will never start; None: it may."""
        blocked = self._store.blocked(now=self._clock.now())
        reason = next((why for each, why in blocked if each.submission_id == job.submission_id), None)
        if reason is None:
            return None
        needs = self._store.get_many(job.spec.depends_on).values()
        failed = [each for each in needs if each.final and each.state is not JobState.SUCCEEDED]
        if job.target is not Target.STOPPED and failed:
            return self._in_need(failed)
        return f"it is about to end: {redact_text(reason, self._secrets.of(job))}"

    def _waits_for(self, job: Job, now: float) -> str:
        if job.not_before > now:
            return f"its next attempt, in {job.not_before - now:.0f} s"
        known = self._store.get_many(job.spec.depends_on)
        waiting = [f"{name} ({known[name].state.value})" for name in job.spec.depends_on if name in known]
        return "its dependencies: " + ", ".join(waiting) if waiting else "the scheduler"

    def _look(self, waiting: Sequence[Job], snapshots: Snapshots | None, *, asked: str) -> _Pass:
        """Put together what the leader plans by. It first ends the jobs that no cluster can take."""
        world = self._world(snapshots)
        queue, views = tuple(map(QueuedJobs(self._config.clusters).of, waiting)), cluster_views(world)
        lines = queue_of(queue).lines(now=world.now)
        ended = {each for line, _ in unworkable_lines(lines, views, self._rules) for each in line.waiters}
        return _Pass(
            queue=tuple(job for job in queue if job.submission_id == asked or job.submission_id not in ended),
            views=views,
            in_use=world.live.held_by_user(),
            now=self._clock.now(),
        )

    def _world(self, snapshots: Snapshots | None) -> World:
        return World(
            specs=self._config.clusters,
            snapshots=self._store.load_snapshots() if snapshots is None else snapshots,
            live=LiveJobs(self._store.live()),
            drains=self._store.drained(),
            now=self._clock.now(),
        )

    def _environments(self, submission_id: str, spec: JobSpec) -> dict[str, EnvironmentView]:
        unfit = dict(self._fits.unfit(spec))
        shown: dict[str, EnvironmentView] = {}
        for cluster in self._config.clusters:
            if cluster.name in unfit:
                refused = unfit[cluster.name]
                shown[cluster.name] = EnvironmentView(entrypoint=None, runtime_env=None, refused=refused)
                continue
            request = compose_submit(
                submission_id, spec, 1, cluster, self._config.clusters, origin=self._store.store_id
            )
            shown[cluster.name] = EnvironmentView(
                entrypoint=redact_text(request.entrypoint, secrets_of(request.runtime_env)),
                runtime_env=redact_env(request.runtime_env),
                refused=None,
                origins=origins(request.runtime_env, self._written[cluster.name], spec.runtime_env),
            )
        return shown


def _in_one_sentence(job: Job, message: str, told: Mapping[str, Any]) -> str:
    """Say where an open job is or goes next, and why; or what it waits for."""
    decision: DecisionView | None = told["decision"]
    if decision is None:
        return f"it waits for {told['waits_for']}" if told["waits_for"] else message
    if decision.cluster is None:
        return decision.sentence
    if is_setting_up(job.state, message):
        return message
    return f"{'on' if job.cluster else 'next on'} {decision.cluster!r}: {decision.sentence}"
