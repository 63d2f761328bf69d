"""No change is lost, wherever between the reader's queries somebody commits, comes or leaves."""

import threading
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.events import EventHub, Subscription
from ray_multicluster_scheduler.store import open_memory_store

S = JobState
JOBS = ("a", "b", "c")
#: What a job does next, so that it is moved three times at least before it ends.
NEXT = {S.QUEUED: S.PLACED, S.PLACED: S.SUBMITTED, S.SUBMITTED: S.RUNNING, S.RUNNING: S.SUCCEEDED}

actions = st.one_of(
    st.tuples(st.just("move"), st.sampled_from(JOBS)),
    st.tuples(st.just("stop"), st.sampled_from(JOBS)),
    st.tuples(st.just("add"), st.just("")),
    st.tuples(st.just("come"), st.sets(st.sampled_from(JOBS), min_size=1).map(",".join)),
    st.tuples(st.just("hear all"), st.just("")),
    st.tuples(st.just("leave"), st.just("")),
)
READS = (
    ("history", "last_event"),
    ("history", "changed_since"),
    ("history", "events"),
    ("jobs", "get_many"),
)


class Scene:
    """A hub whose reader is interrupted before and after each of its queries by what a test has planned."""

    def __init__(self, plan: list[list[tuple[str, str]]]) -> None:
        self.store = open_memory_store()
        self.leader = Leader(self.store)
        self.hub = EventHub(self.store, SystemClock())
        self.plan = plan
        self.acting = threading.Lock()
        self.others = 0
        self.told: dict[Subscription, dict[str, Job | None]] = {}
        for name in JOBS:
            self.leader.add(name)
        for part, name in READS:
            calls = getattr(self.store, part)
            setattr(calls, name, self.interrupted(getattr(calls, name)))

    def interrupted(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(*args: Any, **options: Any) -> Any:
            self.act()
            found = read(*args, **options)
            self.act()
            return found

        return reading

    def act(self) -> None:
        """Do the next part of the plan, unless it is a part of the plan that reads."""
        if self.plan and self.acting.acquire(blocking=False):
            for kind, what in self.plan.pop(0) if self.plan else ():
                self.do(kind, what)
            self.acting.release()

    def do(self, kind: str, what: str) -> None:
        if kind == "move":
            job = self.store.jobs.get(what)
            if job.state in NEXT:
                self.leader.move(what, NEXT[job.state])
        elif kind == "stop":
            self.store.jobs.request_stop([what], now=NOW, reason="enough")
        elif kind == "add":
            self.others += 1
            self.store.jobs.add([(f"other-{self.others}", a_spec())], now=NOW)
        elif kind == "come":
            self.told[self.hub.subscribe(what.split(","))] = {}
        elif kind == "hear all":
            self.told[self.hub.subscribe(None)] = {}
        elif self.told:
            gone = next(iter(self.told))
            del self.told[gone]
            gone.close()

    def finish(self) -> None:
        """Let the rest happen, and return when everybody was told of it."""
        while self.plan:
            self.act()
        with self.hub.subscribe(JOBS[:1]) as fence:  # it is told after whatever was committed before
            fence.wait()

    def close(self) -> None:
        self.hub.close()
        self.store.close()


@settings(max_examples=60)
@given(st.lists(st.lists(actions, max_size=3), max_size=12))
def test_everybody_knows_in_the_end_how_their_jobs_are(plan: list[list[tuple[str, str]]]) -> None:
    scene = Scene([[("come", "a,b")], *plan])
    try:
        scene.act()
        scene.finish()
        for subscription, known in scene.told.items():
            known.update(subscription.wait(0))
            assert known == {each: scene.store.jobs.get(each) for each in subscription.ids}
        open_jobs = {each for each in JOBS if scene.store.jobs.get(each).state not in FINAL}
        watched = {each for subscription in scene.told for each in subscription.ids}
        assert set(scene.hub._watchers) == open_jobs & watched
    finally:
        scene.close()


@settings(max_examples=40)
@given(st.lists(st.lists(actions, max_size=3), max_size=12))
def test_who_hears_all_hears_each_event_once_and_in_order(plan: list[list[tuple[str, str]]]) -> None:
    scene = Scene(plan)
    position, heard = 0, []

    def hear() -> None:
        nonlocal position
        told = scene.hub.kept_after(position)
        if told is None:
            told, position = scene.hub.read_after(position)
        elif told:
            position = told[-1].event.id
        heard.extend(each.event.id for each in told)

    try:
        with scene.hub.subscribe(None) as subscription:
            while scene.plan:
                scene.act()
                hear()
            scene.finish()
            subscription.wait(0)
            hear()
            hear()
        assert heard == [event.id for event in scene.store.history.events(limit=10_000)]
    finally:
        scene.close()
