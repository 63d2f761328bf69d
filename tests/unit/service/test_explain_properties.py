"""`explain` and the dry run say before a pass of the leader what the pass then does, in any state."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, a_spec, a_view
from tests.support.clock import ManualClock
from tests.support.leader import WAY, Leader
from tests.support.strategies import CLUSTERS, THOROUGH, mostly, resources, views

from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.core import events
from ray_multicluster_scheduler.core.instructions import Instruction, ReadJobs, ReadQueue, WriteMoves
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.placement.inputs import Fits, QueuedJobs, World, cluster_views
from ray_multicluster_scheduler.core.placement.plan import plan
from ray_multicluster_scheduler.core.placement.queue import JobQueue, queue_of, unworkable_lines
from ray_multicluster_scheduler.core.placement.wait_reasons import MOST_FRONT, in_numbers, waits
from ray_multicluster_scheduler.core.state import SchedulerState
from ray_multicluster_scheduler.engine.leader import plan_rules, scheduler_rules
from ray_multicluster_scheduler.environment.setup_failure import setup_digest
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.cluster import FailedSetup
from ray_multicluster_scheduler.model.decision import ClusterView, Waiting
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.explain import Explainer
from ray_multicluster_scheduler.service.request import JobRequest, checked
from ray_multicluster_scheduler.store import Store, job_rows, open_memory_store

S = JobState
EMOJI: dict[str, Any] = {"pip": ["emoji"]}
ENVIRONMENTS: tuple[dict[str, Any], ...] = ({}, EMOJI, {"pip": ["ray==2.60.0"]}, {"env_vars": {"A": "1"}})
RULES = plan_rules(Settings())


@dataclass(frozen=True, kw_only=True)
class Put:
    """One job, and what has become of it."""

    spec: JobSpec
    at: float
    state: JobState
    cluster: str
    #: It has failed before: when it may be tried again, and where not.
    again: tuple[float, tuple[str, ...]] | None
    stop: bool


@st.composite
def clusters(draw: st.DrawFn, name: str) -> ClusterView:
    """Draw a cluster with what its leader knows besides what was seen."""
    view = draw(views(name))
    cannot = FailedSetup(
        reason="no such package",
        until=NOW + draw(st.sampled_from((-1.0, 100.0))),
        session_name=draw(mostly(view.snapshot.session_name, "an older one")),
        cluster_env=setup_digest(view.spec.runtime_env),
    )
    snapshot = replace(
        view.snapshot,
        start_limit=draw(mostly(None, 0, 1, 3)),
        warm=draw(mostly((), (setup_digest(EMOJI),))),
        failed_setups=draw(mostly({}, {setup_digest(EMOJI): cannot})),
    )
    return replace(view, snapshot=snapshot)


@st.composite
def specs(draw: st.DrawFn, number: int = 0) -> JobSpec:
    return a_spec(
        user=draw(st.sampled_from(("ann", "bob"))),
        name=f"name-{number}",
        requirements=draw(resources()),
        tags=tuple(draw(st.sets(st.sampled_from(("cpu", "gpu"))))),
        priority=draw(st.integers(0, 1)),
        preferred_cluster=draw(mostly(None, *CLUSTERS, "gone")),
        runtime_env=draw(st.sampled_from(ENVIRONMENTS)),
        depends_on=tuple(
            f"job-{draw(st.integers(0, number - 1))}" for _ in range(draw(mostly(0, 1))) if number
        ),
        queue_timeout_s=draw(mostly(None, 10.0)),
    )


@st.composite
def jobs(draw: st.DrawFn) -> list[Put]:
    states = (S.PLACED, S.SUBMITTED, S.RUNNING, S.UNREACHABLE, S.SUCCEEDED, S.FAILED)
    return [
        Put(
            spec=draw(specs(number)),
            at=NOW - draw(st.sampled_from((0.0, 5.0, 2_000.0))),
            state=draw(mostly(S.QUEUED, *states)),
            cluster=draw(st.sampled_from(CLUSTERS)),
            again=draw(mostly(None, (NOW + 5, ()), (0.0, ("a",)), (NOW, ("a", "b", "c")))),
            stop=draw(mostly(False, True)),
        )
        for number in range(draw(st.integers(1, 8)))
    ]


def put_all(store: Store, leader: Leader, drawn: list[Put]) -> list[str]:
    """Bring every job to its state; return those that wait."""
    for number, put in enumerate(drawn):
        job_id = f"job-{number}"
        store.jobs.add([(job_id, put.spec)], now=put.at)
        if put.state is not S.QUEUED:
            leader.move(job_id, S.PLACED, now=put.at, cluster=put.cluster)
            leader.move(job_id, *WAY[put.state][1:], now=put.at)
        elif put.again is not None:
            not_before, avoid = put.again
            leader.move(job_id, S.PLACED, now=put.at, cluster=put.cluster)
            leader.move(job_id, S.QUEUED, now=put.at, not_before=not_before, avoid=avoid)
        if put.stop:
            store.jobs.request_stop([job_id], now=NOW, reason="no longer needed")
    return [job.submission_id for job in store.jobs.list(states=[S.QUEUED], limit=None)]


class Scene:
    """A store with one leader's clusters and jobs in it."""

    def __init__(self, store: Store, drawn: list[ClusterView]) -> None:
        self.store = store
        self.leader = Leader(store)
        self.config = Config(
            path=Path("clusters.yaml"), clusters=tuple(view.spec for view in drawn), settings=Settings()
        )
        self.snapshots = {view.spec.name: view.snapshot for view in drawn}
        store.clusters.save_snapshots(list(self.snapshots.values()), epoch=self.leader.lease.epoch)
        for view in drawn:
            if view.drained:
                store.clusters.set_drained(view.spec.name, drained=True, reason="new disks", now=NOW)
        self.explainer = Explainer(self.config, store, ManualClock(), RULES, loaded=self.config)

    def causes(self) -> dict[str, tuple[dict[str, str], int]]:
        """For each job that the leader leaves waiting: what each cluster says, and its place."""
        world = self.world()
        ended = {job.submission_id for job, _ in self.store.queue.blocked(now=NOW)}
        ready = [job for job in self.store.queue.runnable(now=NOW) if job.submission_id not in ended]
        views = cluster_views(world)
        lines = queue_of(map(QueuedJobs(self.config.clusters).of, ready)).lines(now=NOW)
        hopeless = [line for line, _ in unworkable_lines(lines, views, RULES)]
        planned = plan(
            [line for line in lines if line not in hopeless],
            views,
            now=NOW,
            rules=RULES,
            in_use=world.live.held_by_user(),
        )
        return {each.submission_id: (causes_of(each), each.position) for each in planned.waiting}

    def one_pass(self) -> SchedulerState:
        """Let the leader's own state read the store and do one pass."""
        store = self.store
        state = SchedulerState(
            self.config.clusters,
            scheduler_rules(Settings()),
            origin=store.store_id,
            live=store.queue.live(),
        )
        # By what it has published: the state itself would have to live through all that led to it.
        cast(Any, state.clusters).snapshots = lambda *, now: self.snapshots
        arrived = events.JobsAccepted(jobs=store.queue.arrivals(after=0, limit=1000))
        drains = events.DrainsRead(drains=store.clusters.drained())
        blocked = events.JobsBlocked(jobs=store.queue.blocked(now=NOW))
        for event in (arrived, drains, blocked, events.Tick(), events.Tick()):
            self._carry_out(state, state.handle(event, now=NOW))
        return state

    def _carry_out(self, state: SchedulerState, wanted: Sequence[Instruction]) -> None:
        """Read and write as the engine does, and do nothing else."""
        for instruction in wanted:
            answer: events.Event | None = None
            if isinstance(instruction, ReadJobs):
                jobs = self.store.jobs.get_many(instruction.submission_ids)
                waiting = {name: job for name, job in jobs.items() if job.state is S.QUEUED}
                answer = events.JobsRead(asked=instruction, jobs=waiting)
            elif isinstance(instruction, WriteMoves):
                epoch = self.leader.lease.epoch
                moved = self.store.jobs.apply(
                    instruction.moves, epoch=epoch, now=NOW, known=instruction.known
                )
                answer = events.MovesWritten(asked=[instruction], moved=moved)
            elif isinstance(instruction, ReadQueue):  # what needs a job that has just failed ends, too
                answer = events.JobsBlocked(jobs=self.store.queue.blocked(now=NOW))
            if answer is not None:
                self._carry_out(state, state.handle(answer, now=NOW))

    def publish(self, *, most_front: int) -> None:
        """Publish why jobs wait as the leader does, with so many jobs as the first of their lines."""
        queue, queued = JobQueue(), QueuedJobs(self.config.clusters)
        blocked = {job.submission_id for job, _ in self.store.queue.blocked(now=NOW)}
        for job, needs in self.store.queue.arrivals(after=0, limit=100_000):
            if job.submission_id not in blocked:
                queue.put(queued.of(job), not_before=job.not_before, needs=needs)
        world = self.world()
        found = waits(
            in_numbers(queue, now=NOW, most_front=most_front),
            cluster_views(world),
            now=NOW,
            rules=RULES,
            in_use=world.live.held_by_user(),
        )
        self.store.clusters.publish_waits(found, epoch=self.leader.lease.epoch)

    def world(self) -> World:
        return World(
            specs=self.config.clusters,
            snapshots=self.snapshots,
            live=LiveJobs(self.store.queue.live()),
            drains=self.store.clusters.drained(),
            now=NOW,
        )


def causes_of(waiting: Waiting) -> dict[str, str]:
    return {name: refusal.cause.value for name, refusal in waiting.refusals.items()}


@THOROUGH
@given(st.tuples(*(clusters(name) for name in CLUSTERS)), st.integers(1, 3), jobs())
def test_what_explain_says_is_what_the_next_pass_does(
    drawn: tuple[ClusterView, ...], count: int, put: list[Put]
) -> None:
    with closing(open_memory_store()) as store:
        scene = Scene(store, list(drawn[:count]))
        ids = put_all(store, scene.leader, put)
        said = {job_id: scene.explainer.explain(store.jobs.get(job_id)) for job_id in ids}
        causes = scene.causes()
        scene.one_pass()
        for job_id, job in store.jobs.get_many(ids).items():
            decision = said[job_id].decision
            if job.state is S.PLACED:
                assert decision is not None, said[job_id]
                assert decision.cluster == job.cluster
                assert decision == scene.explainer.explain(store.jobs.get(job_id)).decision
                assert said[job_id].why == f"next on {job.cluster!r}: {decision.sentence}"
            elif job.state is S.FAILED and job.reason.startswith("no cluster can take its environment"):
                assert decision is not None, said[job_id]
                assert decision.cluster is None
            elif job_id in causes:
                assert decision is not None, said[job_id]
                told = {name: refusal.cause.value for name, refusal in decision.refusals.items()}
                assert (decision.cluster, told, decision.position) == (None, *causes[job_id])
            else:  # it waits for something else than room, or the pass has ended it
                assert decision is None, said[job_id]
                assert said[job_id].why
                assert said[job_id].waits_for or job.final


@THOROUGH
@given(st.tuples(*(clusters(name) for name in CLUSTERS)), st.integers(1, 3), jobs())
def test_why_jobs_wait_is_counted_from_the_store_as_the_leader_counts_it(
    drawn: tuple[ClusterView, ...], count: int, put: list[Put]
) -> None:
    with closing(open_memory_store()) as store:
        scene = Scene(store, list(drawn[:count]))
        put_all(store, scene.leader, put)
        state = scene.one_pass()
        said = scene.explainer.waits()
        assert Counter(said) == Counter(state.waits(now=NOW)())
        assert sum(wait.jobs for wait in said) == store.jobs.counts([S.QUEUED]).get(S.QUEUED, 0)


@THOROUGH
@given(st.tuples(*(clusters(name) for name in CLUSTERS)), st.integers(1, 3), jobs(), specs())
def test_what_the_dry_run_says_is_where_the_job_goes(
    drawn: tuple[ClusterView, ...], count: int, put: list[Put], asked: JobSpec
) -> None:
    with closing(open_memory_store()) as store:
        scene = Scene(store, list(drawn[:count]))
        put_all(store, scene.leader, put)
        request = JobRequest(
            submission_id="new",
            entrypoint=asked.entrypoint,
            user=asked.user,
            runtime_env=dict(asked.runtime_env),
            tags=asked.tags,
            priority=asked.priority,
            preferred_cluster=asked.preferred_cluster,
            resource_requirements=dict(asked.requirements),
        )
        try:
            new, spec = checked(request, fits=Fits(scene.config.clusters))
        except InvalidRequest:
            return  # no cluster can take it at all
        planned = scene.explainer.plan(new, spec, snapshots=store.clusters.load_snapshots())
        store.jobs.add([("new", asked)], now=NOW)
        said = scene.explainer.explain(store.jobs.get("new"))
        scene.one_pass()
        assert said.decision == planned.decision
        assert said.suggestions == planned.suggestions
        assert store.jobs.get("new").cluster == planned.cluster


@st.composite
def long_lines(draw: st.DrawFn) -> list[Put]:
    """Draw many jobs of few kinds, so that lines are long."""
    kinds = [draw(specs()) for _ in range(draw(st.integers(1, 3)))]
    return [
        Put(
            spec=replace(draw(st.sampled_from(kinds)), name=f"name-{number}", depends_on=()),
            at=NOW - draw(st.sampled_from((5.0, 2_000.0))),
            state=draw(mostly(S.QUEUED, S.RUNNING)),
            cluster=draw(st.sampled_from(CLUSTERS)),
            again=draw(mostly(None, (NOW + 5, ()), (0.0, ("a",)))),
            stop=draw(mostly(False, True)),
        )
        for number in range(draw(st.integers(1, 20)))
    ]


@THOROUGH
@given(
    st.tuples(*(clusters(name) for name in CLUSTERS)),
    st.integers(1, 3),
    long_lines(),
    st.integers(1, 8),
    long_lines(),
)
def test_with_the_first_jobs_of_each_line_explain_says_what_it_says_with_all(
    drawn: tuple[ClusterView, ...], count: int, put: list[Put], most_front: int, later: list[Put]
) -> None:
    with closing(open_memory_store()) as store:
        scene = Scene(store, list(drawn[:count]))
        put_all(store, scene.leader, put)
        scene.publish(most_front=most_front)
        for number, late in enumerate(later[:3]):
            store.jobs.add([(f"late-{number}", late.spec)], now=NOW)
        waiting = store.jobs.list(states=[S.QUEUED], limit=None)
        said = [scene.explainer.explain(job) for job in waiting]
        store.leases.release(scene.leader.lease)  # now all is read
        for job, front in zip(waiting, said, strict=True):
            whole = scene.explainer.explain(job)
            assert front == whole.model_copy(update={"suggestions": front.suggestions})
            # A remedy is left out if it depends on jobs that were not read.
            assert tuple(each for each in whole.suggestions if each in front.suggestions) == front.suggestions


def rows_read(scene: Scene, job_id: str) -> int:
    """Explain a job; return how many jobs were read from the store."""
    with patch.object(job_rows, "job_from", side_effect=job_rows.job_from) as reads:
        scene.explainer.explain(scene.store.jobs.get(job_id))
    return int(reads.call_count)


def test_what_explain_reads_does_not_grow_with_the_queue() -> None:
    reads, said = {}, {}
    for jobs_before in (3_000, 12_000):
        with closing(open_memory_store()) as store:
            scene = Scene(store, [a_view("a", drained=True)])
            specs = [a_spec(user=("ann", "bob")[number % 2]) for number in range(jobs_before + 1)]
            store.jobs.add([(f"job-{number}", spec) for number, spec in enumerate(specs)], now=NOW)
            scene.publish(most_front=MOST_FRONT)
            last = f"job-{jobs_before}"
            reads[jobs_before] = rows_read(scene, last)
            said[jobs_before] = scene.explainer.explain(store.jobs.get(last)).position
    assert reads[12_000] == reads[3_000] <= MOST_FRONT + 10
    assert said == {3_000: 3_001, 12_000: 12_001}


def test_a_job_is_read_again_only_to_see_whether_it_may_start() -> None:
    with closing(open_memory_store()) as store:
        scene = Scene(store, [a_view("a", drained=True)])
        store.jobs.add([("alone", a_spec())], now=NOW)
        scene.publish(most_front=MOST_FRONT)
        assert rows_read(scene, "alone") == 3  # asked for; may it start; the first of its line
