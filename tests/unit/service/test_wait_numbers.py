"""Why jobs wait, in numbers: from the engine if it leads, else from the store, and once for many who ask."""

from typing import cast

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.core.placement.wait_reasons import TURN, Wait
from ray_multicluster_scheduler.service.explain import Explainer, Snapshots
from ray_multicluster_scheduler.service.wait_numbers import GOOD_FOR_S, WaitNumbers

OF_ENGINE = (Wait(reason=TURN, jobs=1, oldest=5.0),)
OF_STORE = (Wait(reason=TURN, jobs=2, oldest=4.0),)


class Clock(SystemClock):
    """Its time passes when a test says so."""

    passed = 0.0

    def monotonic(self) -> float:
        return self.passed


class Scene:
    """An engine that leads or does not, and a store; both count how often they are asked."""

    def __init__(self, *, leads: bool) -> None:
        self.leads = leads
        self.asked: list[str] = []
        self.clock = Clock()
        self.reasons = WaitNumbers(
            cast(Explainer, self), self.clock, of_engine=self.of_engine, look=lambda: None
        )

    def of_engine(self) -> tuple[Wait, ...] | None:
        self.asked.append("engine")
        return OF_ENGINE if self.leads else None

    def waits(self, *, snapshots: Snapshots | None) -> tuple[Wait, ...]:
        assert snapshots is None
        self.asked.append("store")
        return OF_STORE


def test_a_leader_answers_with_its_own_numbers() -> None:
    scene = Scene(leads=True)
    assert scene.reasons() == OF_ENGINE
    assert scene.asked == ["engine"]


def test_where_another_process_leads_the_store_is_asked() -> None:
    assert Scene(leads=False).reasons() == OF_STORE


def test_many_who_ask_cost_one_computation() -> None:
    scene = Scene(leads=False)
    assert {scene.reasons() for _ in range(50)} == {OF_STORE}
    assert scene.asked == ["engine", "store"]
    scene.clock.passed += GOOD_FOR_S
    scene.reasons()
    assert scene.asked == ["engine", "store"] * 2
