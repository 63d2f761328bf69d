"""Why a job is where it is, and what would let it start: the planner's own words, not a second opinion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ray_multicluster_scheduler.clock import CachedFor
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.lifecycle.attempt_request import compose_submit
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.placement.inputs import Fits, QueuedJobs, World, cluster_views
from ray_multicluster_scheduler.core.placement.plan import Decided, QueueCut
from ray_multicluster_scheduler.core.placement.queue import (
    JobQueue,
    line_name,
    queue_of,
    unworkable_lines,
    with_job,
)
from ray_multicluster_scheduler.core.placement.wait_reasons import MOST_NAMED, Question, in_numbers, waits
from ray_multicluster_scheduler.core.rules import FIRST_LOOK_S, PlanRules
from ray_multicluster_scheduler.environment.compose import origins
from ray_multicluster_scheduler.environment.redact import redact_env, redact_text, secrets_of
from ray_multicluster_scheduler.environment.setup_failure import is_setting_up
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.decision import (
    DEPENDENCIES,
    RETRY_DELAY,
    QueuedJob,
    Wait,
    Waiting,
)
from ray_multicluster_scheduler.model.job import Job, JobSpec, Target, left_alone
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.make_views import Secrets, show_decision
from ray_multicluster_scheduler.service.views import DecisionView, EnvironmentView, Explanation, PlanView

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class _Front:
    """The jobs that the planner looks at, or of each line the first ones."""

    jobs: Sequence[Job]
    #: How many jobs follow the last one that was read of a line, by the id of that.
    beyond: Mapping[str, int] = field(default_factory=dict)


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
        self, config: Config, store: Store, clock: Clock, rules: PlanRules, *, loaded: Config
    ) -> None:
        """`loaded` is the configuration as it was read: a server adds to the environments of its clusters."""
        self._config = config
        self._written = {spec.name: spec.runtime_env for spec in loaded.clusters}
        self._fits = Fits(config.clusters)
        self._queued = QueuedJobs(config.clusters, rules.executors)
        self._secrets = Secrets(config.clusters)
        self._store = store
        self._clock = clock
        self._rules = rules

    def explain(self, job: Job, *, snapshots: Snapshots | None = None) -> Explanation:
        """Return state, reason and, per cluster, score parts or refusal; for a waiting job also ways out."""
        submission_id, ends = job.submission_id, None
        told: dict[str, Any] = {"decision": None, "waits_for": None, "position": None, "suggestions": ()}
        if job.state is JobState.QUEUED:
            blocked = self._blocked(self._clock.now())
            ends = self._about_to_end(job, blocked.get(submission_id))
            told |= {} if ends else self._waiting(job, blocked, snapshots)
        elif attempts := self._store.history.attempts(submission_id, last=1):
            told["decision"] = show_decision(attempts[-1].decision)
        message = redact_text(job.reason, self._secrets.of(job))
        return Explanation(
            submission_id=submission_id,
            state=job.state,
            message=message,
            cluster=job.cluster,
            attempt=job.attempt,
            why=ends or self._why(job, message, told),
            **told,
        )

    def _why(self, job: Job, message: str, told: Mapping[str, Any]) -> str:
        if job.final:
            return message
        if job.cluster and job.spec.executor not in self._rules.executors:
            return left_alone(job)
        return _in_one_sentence(job, message, told)

    def plan(self, submission_id: str, spec: JobSpec, *, snapshots: Snapshots) -> PlanView:
        """Return what would happen to a job that is accepted now; nothing is stored or sent."""
        now = self._clock.now()
        job = Job(seq=2**62, submission_id=submission_id, spec=spec, accepted_at=now, changed_at=now)
        told = self._told(job, self._blocked(now), snapshots)
        return PlanView(
            cluster=told["decision"].cluster, environments=self._environments(submission_id, spec), **told
        )

    def waits(self, *, snapshots: Snapshots | None = None) -> tuple[Wait, ...]:
        """Return for each reason how many jobs wait for it: what the leader says of its queue."""
        world, queue = self._world(snapshots), JobQueue()
        ended = self._blocked(world.now)
        for job, needs in self._arrivals():
            if job.submission_id not in ended:
                queue.put(self._queued.of(job), not_before=job.not_before, needs=needs)
        return self._waits(queue, world)

    def waits_of(self, jobs: Sequence[Job], *, snapshots: Snapshots | None = None) -> tuple[Wait, ...]:
        """Like `waits`, for these jobs, which need no others, behind the first `QUEUE_PAGE` of the queue.

        What it costs does not depend on the length of the queue.
        """
        world, queue = self._world(snapshots), JobQueue()
        for job in (*self._store.queue.runnable(now=world.now, limit=QUEUE_PAGE), *jobs):
            queue.put(self._queued.of(job))
        return self._waits(queue, world)

    def _waits(self, queue: JobQueue, world: World) -> tuple[Wait, ...]:
        views = cluster_views(world)
        for line, _ in unworkable_lines(queue.lines(now=world.now), views, self._rules):
            queue.remove(list(line.waiters))
        numbers, in_use = in_numbers(queue, now=world.now), world.live.held_by_user()
        return waits(numbers, views, now=world.now, rules=self._rules, in_use=in_use)

    def reasons(
        self, queued: Sequence[Job], waits_of: Callable[[Sequence[Job]], Sequence[Wait]]
    ) -> dict[str, tuple[str, str]]:
        """Return for each of these queued jobs why it waits, and the same in a sentence.

        `waits_of` says what those wait for that may start. A job that it does not know yet is left out.
        """
        now = self._clock.now()
        needs = self._store.jobs.get_many(list({need for job in queued for need in job.spec.depends_on}))
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

    def _arrivals(self, *, after: int = 0) -> Iterator[tuple[Job, tuple[str, ...]]]:
        """Yield the waiting jobs that came after a `seq`, with their open dependencies."""
        while page := self._store.queue.arrivals(after=after, limit=QUEUE_PAGE):
            yield from page
            after = page[-1][0].seq

    def after_first_look(self) -> Snapshots:
        """Return the snapshots of the leader; wait while it probes all clusters for the first time."""
        ends_at = self._clock.monotonic() + FIRST_LOOK_S
        while True:
            seen = self._store.clusters.load_snapshots()
            known = all(c.name in seen and not seen[c.name].awaited for c in self._config.clusters)
            if known or self._clock.monotonic() >= ends_at:
                return seen
            self._store.changes.wait(0, timeout_s=NAP_S)

    def _waiting(self, job: Job, blocked: Collection[str], snapshots: Snapshots | None) -> dict[str, Any]:
        now = self._clock.now()
        if not self._store.queue.runnable_among([job.seq], now=now):
            return {"waits_for": self._waits_for(job, now)}
        return self._told(job, blocked, snapshots)

    def _told(self, job: Job, blocked: Collection[str], snapshots: Snapshots | None) -> dict[str, Any]:
        """Return the decision about a job that may start, its place in the queue, and ways out.

        Where a leader has published the first jobs of each line, only these are read. The whole queue is read
        where nobody leads, and where more jobs of one line could be placed at once than were published: then
        the leader is about to place them.
        """
        world = self._world(snapshots)
        front = self._published_front(blocked, now=world.now)
        with suppress(QueueCut):
            if front is not None:
                return self._decided(job, front, world)
        return self._decided(job, _Front(jobs=self._ready(world.now, blocked)), world)

    def _decided(self, job: Job, front: _Front, world: World) -> dict[str, Any]:
        asked = self._queued.of(job)
        queued = {each.submission_id: self._queued.of(each) for each in front.jobs}
        queued[job.submission_id] = asked
        lines, views = queue_of(queued.values()).lines(now=world.now), cluster_views(world)
        ended = [line for line, _ in unworkable_lines(lines, views, self._rules)]
        if ended and front.beyond:  # they are about to leave the queue, and are counted there
            raise QueueCut
        if any(job.submission_id in line.waiters for line in ended):
            lines = with_job([line for line in lines if line not in ended], asked)
        question = Question(
            lines=tuple(line for line in lines if line not in ended),
            views=views,
            now=world.now,
            rules=self._rules,
            in_use=world.live.held_by_user(),
            beyond=front.beyond,
        )
        decided = question.decide(asked)
        decision = decided.decision
        if isinstance(decision, Waiting):
            unread = self._unread_before(asked, question, decided) if front.beyond else 0
            decision = replace(decision, position=decision.position + unread)
        found = question.suggestions(asked, replace(decided, decision=decision))
        return {
            "decision": show_decision(decision),
            "position": decision.position if isinstance(decision, Waiting) else None,
            "suggestions": tuple(each.sentence for each in found),
        }

    def _unread_before(self, job: QueuedJob, asked: Question, decided: Decided) -> int:
        """Return how many jobs that were not read wait before this one: those of its peers are counted."""
        read = sum(
            waiter.seq < job.seq
            for line in asked.lines
            if line.sample.priority == job.priority and line.sample.user in decided.peers
            for waiter in line.waiters.values()
        )
        older = self._store.queue.count_runnable(
            now=asked.now, users=decided.peers, priority=job.priority, before_seq=job.seq
        )
        return decided.beyond + max(0, older - read)

    def _published_front(self, blocked: Collection[str], *, now: float) -> _Front | None:
        """Read the jobs that the leader has published as the first of their lines, and those that came later.

        None: nothing was published, or all of the first jobs of a long line have left it since.
        """
        waits = self._store.clusters.published_waits(now=now)
        if waits is None or any(wait.lines.keys() != wait.fronts.keys() for wait in waits):
            return None
        fronts = {name: front for wait in waits for name, front in wait.fronts.items()}
        beyond = {name: more for wait in waits for name, more in wait.beyond.items()}
        seqs = [seq for front in fronts.values() for seq in front]
        there = self._store.queue.runnable_among(seqs, now=now)
        read = {each.seq: each for each in there if each.submission_id not in blocked}
        last: dict[str, int] = {}
        for name, more in beyond.items():
            left = [seq for seq in fronts[name] if seq in read]
            if not left:
                return None
            last[read[left[-1]].submission_id] = more
        newest = max((wait.newest_seq for wait in waits), default=0)
        came = [
            each
            for each, needs in self._arrivals(after=newest)
            if not needs and each.not_before <= now and each.submission_id not in blocked
        ]
        return _Front(jobs=[*read.values(), *came], beyond=last)

    def _ready(self, now: float, blocked: Collection[str]) -> list[Job]:
        """Return the jobs that the leader plans for: jobs that can never start are ended before."""
        return [job for job in self._store.queue.runnable(now=now) if job.submission_id not in blocked]

    def _blocked(self, now: float) -> dict[str, str]:
        """Return the queued jobs that will never start, with the reasons."""
        return {job.submission_id: why for job, why in self._store.queue.blocked(now=now)}

    def _about_to_end(self, job: Job, reason: str | None) -> str | None:
        """Say why a queued job will never start; None: it may."""
        if reason is None:
            return None
        needs = self._store.jobs.get_many(job.spec.depends_on).values()
        failed = [each for each in needs if each.final and each.state is not JobState.SUCCEEDED]
        if job.target is not Target.STOPPED and failed:
            return self._in_need(failed)
        return f"it is about to end: {redact_text(reason, self._secrets.of(job))}"

    def _waits_for(self, job: Job, now: float) -> str:
        if job.not_before > now:
            return f"its next attempt, in {job.not_before - now:.0f} s"
        known = self._store.jobs.get_many(job.spec.depends_on)
        waiting = [f"{name} ({known[name].state.value})" for name in job.spec.depends_on if name in known]
        return "its dependencies: " + ", ".join(waiting) if waiting else "the scheduler"

    def _world(self, snapshots: Snapshots | None) -> World:
        return World(
            specs=self._config.clusters,
            snapshots=self._store.clusters.load_snapshots() if snapshots is None else snapshots,
            live=LiveJobs(self._store.queue.live()),
            drains=self._store.clusters.drained(),
            executors=self._rules.executors,
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


# Why jobs wait, in numbers and job by job, for everybody who asks.


#: How long an answer is reused, so that many pages cost one pass over the queue.
GOOD_FOR_S = 2.0
#: A pass over thousands of kinds of jobs takes seconds: looks at lists must not slow the leader down.
TIMES = 10.0
#: What the leader has published is read this often at most.
READ_EVERY_S = 0.5


class WaitNumbers:
    """The numbers that the leader publishes; where nobody leads, the same worked out from the store."""

    def __init__(
        self,
        explainer: Explainer,
        clock: Clock,
        published: Callable[[], tuple[Wait, ...] | None],
        *,
        look: Callable[[], Snapshots | None],
    ) -> None:
        self._explainer = explainer
        self._look = look
        self._published = CachedFor(published, clock, good_for_s=READ_EVERY_S)
        self._of_store = CachedFor(
            lambda: explainer.waits(snapshots=look()), clock, good_for_s=GOOD_FOR_S, times=TIMES
        )

    def __call__(self) -> tuple[Wait, ...]:
        """Return every reason with waiting jobs; those that ask at the same time share one computation."""
        found = self._published()
        return self._of_store() if found is None else found

    def of(self, jobs: Sequence[Job]) -> tuple[Wait, ...]:
        """Return the reasons why these jobs wait, which need no others, and perhaps those of others."""
        found = self._published() or ()
        known = {line for wait in found for line in wait.lines}
        unknown = [job for job in jobs if self._explainer.line_of(job) not in known]
        if unknown:  # they came after the leader has last published
            found = (*found, *self._explainer.waits_of(unknown, snapshots=self._look()))
        return found
