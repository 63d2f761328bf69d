"""While a bridge is opened, nobody waits for it but the work that goes over it."""

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import a_cluster, a_snapshot
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.errors import ClusterUnreachable, SchedulerError
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.tasks import cluster_selector as module
from ray_multicluster_scheduler.tasks.bridges import Bridges
from ray_multicluster_scheduler.tasks.cluster_selector import ClusterSelector
from ray_multicluster_scheduler.tasks.home import Home
from ray_multicluster_scheduler.tasks.placement import Decision, NoRoomNow, Versions

CPU = {"CPU": 1.0}


class Opened:
    """A bridge that is open."""

    is_lost = False

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class SlowBridges(Bridges):
    """Opens no bridge to a cluster before it is told to."""

    def __init__(self) -> None:
        super().__init__(lambda _: {}, lambda _: None, {})
        self.asked = {name: threading.Event() for name in "bc"}
        self.may_open = {name: threading.Event() for name in "bc"}
        self.opened: list[Opened] = []

    def _start(self, spec: ClusterSpec, *, namespace: str, purpose: str) -> Any:
        self.asked[spec.name].set()
        assert self.may_open[spec.name].wait(PATIENCE_S)
        self.opened.append(Opened())
        return self.opened[-1]

    def open(self, name: str) -> Any:
        return self.to(a_cluster(name), namespace="", purpose="")


def in_thread(action: Any) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(action())
        except SchedulerError as problem:
            outcome.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def test_the_bridge_to_one_cluster_does_not_wait_for_that_to_another() -> None:
    bridges = SlowBridges()
    slow, _ = in_thread(lambda: bridges.open("b"))
    assert bridges.asked["b"].wait(PATIENCE_S)
    bridges.may_open["c"].set()
    fast, opened = in_thread(lambda: bridges.open("c"))
    fast.join(PATIENCE_S)
    assert opened == bridges.opened
    bridges.may_open["b"].set()
    slow.join(PATIENCE_S)


def test_two_threads_open_one_bridge() -> None:
    bridges = SlowBridges()
    both = [in_thread(lambda: bridges.open("b")) for _ in range(2)]
    bridges.may_open["b"].set()
    for thread, _ in both:
        thread.join(PATIENCE_S)
    assert [outcome for _, outcome in both] == [bridges.opened, bridges.opened]
    assert len(bridges.opened) == 1


def test_a_bridge_that_opens_after_the_scheduler_was_stopped_is_closed() -> None:
    bridges = SlowBridges()
    thread, outcome = in_thread(lambda: bridges.open("b"))
    assert bridges.asked["b"].wait(PATIENCE_S)
    bridges.close()
    bridges.may_open["b"].set()
    thread.join(PATIENCE_S)
    assert isinstance(outcome[0], SchedulerError)
    assert [bridge.closed for bridge in bridges.opened] == [True]


class Capacity:
    """A home with room for whatever claims no GPU."""

    def fits(self, claim: Any) -> bool:
        return "GPU" not in claim

    fits_now = fits

    def find_finished(self) -> None:
        pass

    def snapshot(self) -> Any:
        return a_snapshot("a")


class Joined(ClusterSelector):
    """A selector with a home, whose bridge to the other cluster takes its time, or fails."""

    def __init__(self) -> None:
        clusters = a_cluster("a"), a_cluster("b")
        super().__init__(
            Config(path=Path("clusters.yaml"), clusters=clusters, settings=Settings()),
            directory=Path(),
            environ={},
            clock=SystemClock(),
            drains=dict,
            on_joined=lambda: None,
        )
        self._home_decision = Decision(cluster="a", sentence="home has room")
        self.asked, self.may_open = threading.Event(), threading.Event()
        self.problem: ClusterUnreachable | None = None

    def _ensure_joined(self, work: Any) -> Any:
        return Home(name="a", connected_by_us=False, over_client=False), Capacity()

    def _observe(self, excluding: str | None = None) -> Any:
        return {"a": a_snapshot("a"), "b": a_snapshot("b", {"CPU": 4.0, "GPU": 1.0})}, {}

    def _open_bridge(self, cluster: str, home: Home) -> Any:
        self.asked.set()
        assert self.may_open.wait(PATIENCE_S)
        if self.problem is not None:
            raise self.problem
        return Opened()


@pytest.fixture
def selector(monkeypatch: pytest.MonkeyPatch) -> Joined:
    monkeypatch.setattr(module, "_versions", lambda: Versions(ray="2.60.0", python="3.12.3"))
    return Joined()


def place(selector: Joined, claim: dict[str, float]) -> str:
    with selector.select("w", claim, tags=(), preferred=None) as selection:
        return selection.decision.cluster


def test_work_for_which_home_has_room_waits_for_no_bridge(selector: Joined) -> None:
    opening, far = in_thread(lambda: place(selector, {"GPU": 1.0}))
    assert selector.asked.wait(PATIENCE_S)
    near, at = in_thread(lambda: place(selector, CPU))
    near.join(PATIENCE_S)
    assert at == ["a"]
    selector.may_open.set()
    opening.join(PATIENCE_S)
    assert far == ["b"]


def test_a_claim_counts_while_its_bridge_opens_and_is_given_back_if_it_cannot_be_opened(
    selector: Joined,
) -> None:
    selector.problem = ClusterUnreachable("b", "nobody there")
    opening, outcome = in_thread(lambda: place(selector, {"GPU": 1.0}))
    assert selector.asked.wait(PATIENCE_S)
    assert selector._unobserved.total("b") == {"GPU": 1.0}
    selector.drop_old_refs()
    assert selector._unobserved.total("b") == {"GPU": 1.0}
    selector.may_open.set()
    opening.join(PATIENCE_S)
    assert isinstance(outcome[0], SchedulerError)
    assert not any(selector._unobserved.total("b").values())


def test_work_that_is_not_to_wait_inside_ray_is_told_where_there_is_no_room(selector: Joined) -> None:
    selector.may_open.set()
    gpu, at_once = {"GPU": 1.0}, {"tags": (), "preferred": None, "waits_for_room": False}
    with selector.select("first", gpu, **at_once) as selection:
        assert selection.decision.cluster == "b"
    with pytest.raises(NoRoomNow, match=r"- b: needs 1 GPU; free: 0 GPU"):
        selector.select("second", gpu, **at_once).__enter__()
    assert selector._unobserved.total("b") == gpu


def test_work_does_not_go_where_it_is_not_to_go_and_home_is_no_exception(selector: Joined) -> None:
    selector.may_open.set()
    with selector.select("first", CPU, tags=(), preferred=None, avoid=["a"]) as selection:
        assert selection.decision.cluster == "b"
    with pytest.raises(NoRoomNow, match="left out for now: a, b"):
        selector.select("second", CPU, tags=(), preferred=None, avoid=["b", "a"]).__enter__()


def test_a_claim_is_given_back_when_what_it_was_for_fails(selector: Joined) -> None:
    with pytest.raises(TypeError), selector.select("w", CPU, tags=(), preferred=None):
        raise TypeError("missing 1 required positional argument")
    assert not any(selector._unobserved.total("a").values())
