"""Why jobs wait, in numbers: as the leader has published it, else from the store, once for many who ask."""

from collections.abc import Sequence
from typing import cast

from tests.support.builders import a_job, a_spec
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.model.decision import TURN, Wait
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.service.explain import GOOD_FOR_S, Explainer, Snapshots, WaitNumbers

OF_LEADER = (Wait(reason=TURN, jobs=1, oldest=5.0, lines={"ann": "no room"}),)
OF_STORE = (Wait(reason=TURN, jobs=2, oldest=4.0),)


class Scene:
    """A leader that has published something or has not, and a store; both count how often they are asked."""

    def __init__(self, *, leads: bool) -> None:
        self.leads = leads
        self.asked: list[str] = []
        self.clock = ManualClock()
        self.reasons = WaitNumbers(cast(Explainer, self), self.clock, self.published, look=lambda: None)

    def published(self) -> tuple[Wait, ...] | None:
        self.asked.append("leader")
        return OF_LEADER if self.leads else None

    def waits(self, *, snapshots: Snapshots | None) -> tuple[Wait, ...]:
        assert snapshots is None
        self.asked.append("store")
        return OF_STORE

    def line_of(self, job: Job) -> str:
        return job.spec.user

    def waits_of(self, jobs: Sequence[Job], *, snapshots: Snapshots | None) -> tuple[Wait, ...]:
        assert snapshots is None
        self.asked.append("store")
        lines = {job.spec.user: "worked out" for job in jobs}
        return (Wait(reason="NO_ROOM", jobs=len(jobs), oldest=0.0, lines=lines),)


def test_what_the_leader_has_published_is_the_answer() -> None:
    scene = Scene(leads=True)
    assert scene.reasons() == OF_LEADER
    assert scene.asked == ["leader"]


def test_where_nobody_leads_the_numbers_are_worked_out_from_the_store() -> None:
    assert Scene(leads=False).reasons() == OF_STORE


def test_jobs_that_came_since_the_leader_published_are_worked_out() -> None:
    scene = Scene(leads=True)
    known, new = a_job("known"), a_job("new", spec=a_spec(user="bob"))
    assert scene.reasons.of([known]) == OF_LEADER
    assert scene.asked == ["leader"]
    lines = {line: text for wait in scene.reasons.of([known, new]) for line, text in wait.lines.items()}
    assert lines == {"ann": "no room", "bob": "worked out"}


def test_many_who_ask_cost_one_computation() -> None:
    scene = Scene(leads=False)
    assert {scene.reasons() for _ in range(50)} == {OF_STORE}
    assert scene.asked == ["leader", "store"]
    scene.clock.advance(GOOD_FOR_S)
    scene.reasons()
    assert scene.asked == ["leader", "store"] * 2
