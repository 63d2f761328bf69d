"""Whatever is done in whatever order: states move along the table, and each move has its event."""

import itertools
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.model.job import Job, Target
from ray_multicluster_scheduler.model.states import FINAL, LIVE, TRANSITIONS, JobState, may_move
from ray_multicluster_scheduler.store import open_memory_store

S = JobState
ANY = st.randoms(use_true_random=False)


class Walk(RuleBasedStateMachine):
    """Submits, moves, stops and repeats old wishes; keeps beside the store only what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.store = open_memory_store()
        self.leader = Leader(self.store)
        self.clock = NOW
        self.told: dict[str, Job] = {}
        self.former: list[Job] = []

    def teardown(self) -> None:
        self.store.close()

    def hear(self, *jobs: Job) -> None:
        self.former += [self.told[job.submission_id] for job in jobs if job.submission_id in self.told]
        self.told |= {job.submission_id: job for job in jobs}

    @rule(seconds=st.integers(1, 50))
    def time_passes(self, seconds: int) -> None:
        self.clock += seconds

    @rule(
        chance=ANY,
        priority=st.integers(-1, 1),
        limit=st.none() | st.just(20.0),
        group=st.sampled_from([None, None, "g"]),
    )
    def submit(self, chance: Any, priority: int, limit: float | None, group: str | None) -> None:
        known = sorted(self.told)
        needs = tuple(chance.sample(known, k=min(len(known), chance.randrange(3))))
        spec = a_spec(priority=priority, queue_timeout_s=limit, depends_on=needs, group=group)
        self.hear(*self.store.jobs.add([(f"job-{len(known)}", spec)], now=self.clock))

    @rule(chance=ANY, delay=st.integers(0, 30))
    def move(self, chance: Any, delay: int) -> None:
        movable = [job for job in self.told.values() if not job.final]
        if not movable:
            return
        job = chance.choice(sorted(movable, key=lambda job: job.seq))
        new = chance.choice(sorted(TRANSITIONS[job.state]))
        changes = {"not_before": self.clock + delay} if new is S.QUEUED else {}
        (moved,) = self.leader.apply(self.leader.wanted(job, new, **changes), now=self.clock)
        self.hear(moved)

    @rule(chance=ANY)
    def stop(self, chance: Any) -> None:
        if self.told:
            chosen = chance.choice(sorted(self.told))
            self.hear(*self.store.jobs.request_stop([chosen], now=self.clock, reason="stop"))

    @rule(chance=ANY)
    def repeat_an_old_wish(self, chance: Any) -> None:
        stale = [
            job
            for job in self.former
            if not job.final
            and (job.state, job.attempt)
            != (self.told[job.submission_id].state, self.told[job.submission_id].attempt)
        ]
        if stale:
            job = chance.choice(stale)
            wish = self.leader.wanted(job, chance.choice(sorted(TRANSITIONS[job.state])))
            assert self.leader.apply(wish, now=self.clock) == ()

    @invariant()
    def the_store_has_what_it_told(self) -> None:
        assert self.store.jobs.get_many(sorted(self.told)) == self.told

    @invariant()
    def jobs_are_listed_under_jobs_that_are_listed_themselves(self) -> None:
        heads = {job.submission_id for job in self.told.values() if job.head is None}
        assert {job.head for job in self.told.values()} <= {None, *heads}
        assert len({job.head or job.submission_id for job in self.told.values() if job.spec.group}) < 2

    @invariant()
    def events_lead_to_the_state(self) -> None:
        for job in self.told.values():
            events = self.store.history.events(job.submission_id)
            assert (events[0].old, events[0].new) == (None, S.QUEUED)
            for earlier, event in itertools.pairwise(events):
                assert event.old is earlier.new
                assert event.new is event.old or may_move(event.old, event.new)
            assert events[-1].new is job.state

    @invariant()
    def exactly_the_live_jobs_have_a_live_attempt(self) -> None:
        live = {job.submission_id for job in self.told.values() if job.state in LIVE}
        assert {job.submission_id for job in self.store.queue.live()} == live
        for job in self.told.values():
            attempts = self.store.history.attempts(job.submission_id)
            assert [attempt.number for attempt in attempts] == list(range(1, job.attempt + 1))
            open_ones = [attempt.number for attempt in attempts if attempt.outcome is None]
            assert open_ones == ([job.attempt] if job.submission_id in live else [])

    @invariant()
    def what_may_run_and_what_must_end_follow_from_the_jobs(self) -> None:
        queued = [job for job in self.told.values() if job.state is S.QUEUED]
        may_run = sorted((-job.spec.priority, job.seq, job) for job in queued if self.may_run(job))
        assert self.store.queue.runnable(now=self.clock) == tuple(job for _, _, job in may_run)
        assert {job.submission_id for job, _ in self.store.queue.blocked(now=self.clock)} == {
            job.submission_id for job in queued if self.must_end(job)
        }

    def may_run(self, job: Job) -> bool:
        done = all(self.told[need].state is S.SUCCEEDED for need in job.spec.depends_on)
        return done and job.target is Target.FINISHED and job.not_before <= self.clock

    def must_end(self, job: Job) -> bool:
        limit = job.spec.queue_timeout_s
        return (
            job.target is Target.STOPPED
            or (limit is not None and job.changed_at + limit <= self.clock)
            or any(self.told[need].state in FINAL - {S.SUCCEEDED} for need in job.spec.depends_on)
        )


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
