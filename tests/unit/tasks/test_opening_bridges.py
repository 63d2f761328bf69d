"""While a bridge is opened, nobody waits for it but the work that goes over it."""

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.builders import a_cluster, a_snapshot

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.errors import ClusterUnreachable, SchedulerError
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.tasks import cluster_selector as module
from ray_multicluster_scheduler.tasks.bridges import Spans
from ray_multicluster_scheduler.tasks.cluster_selector import Chooser
from ray_multicluster_scheduler.tasks.home import Home
from ray_multicluster_scheduler.tasks.placement import Decision, Versions

PATIENCE_S = 30.0
CPU = {"CPU": 1.0}


class Opened:
    """A bridge that is open."""

    is_lost = False

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class SlowSpans(Spans):
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
    spans = SlowSpans()
    slow, _ = in_thread(lambda: spans.open("b"))
    assert spans.asked["b"].wait(PATIENCE_S)
    spans.may_open["c"].set()
    fast, opened = in_thread(lambda: spans.open("c"))
    fast.join(PATIENCE_S)
    assert opened == spans.opened
    spans.may_open["b"].set()
    slow.join(PATIENCE_S)


def test_two_threads_open_one_bridge() -> None:
    spans = SlowSpans()
    both = [in_thread(lambda: spans.open("b")) for _ in range(2)]
    spans.may_open["b"].set()
    for thread, _ in both:
        thread.join(PATIENCE_S)
    assert [outcome for _, outcome in both] == [spans.opened, spans.opened]
    assert len(spans.opened) == 1


def test_a_bridge_that_opens_after_the_scheduler_was_stopped_is_closed() -> None:
    spans = SlowSpans()
    thread, outcome = in_thread(lambda: spans.open("b"))
    assert spans.asked["b"].wait(PATIENCE_S)
    spans.close()
    spans.may_open["b"].set()
    thread.join(PATIENCE_S)
    assert isinstance(outcome[0], SchedulerError)
    assert [span.closed for span in spans.opened] == [True]


class Room:
    """A home with room for whatever claims no GPU."""

    def fits(self, claim: Any) -> bool:
        return "GPU" not in claim

    def snapshot(self) -> Any:
        return a_snapshot("a")


class Joined(Chooser):
    """A chooser with a home, whose bridge to the other cluster takes its time, or fails."""

    def __init__(self) -> None:
        clusters = a_cluster("a"), a_cluster("b")
        super().__init__(
            Config(path=Path("clusters.yaml"), clusters=clusters, settings=Settings()),
            directory=Path(),
            environ={},
            clock=SystemClock(),
            drains=dict,
            when_joined=lambda: None,
        )
        self._at_home = Decision(cluster="a", sentence="home has room")
        self.asked, self.may_open = threading.Event(), threading.Event()
        self.problem: ClusterUnreachable | None = None

    def _joined(self, work: Any) -> Any:
        return Home(name="a", ours=False, over_client=False), Room()

    def _look(self, but: str | None = None) -> Any:
        return {"a": a_snapshot("a"), "b": a_snapshot("b", {"CPU": 4.0, "GPU": 1.0})}, {}

    def _span_to(self, cluster: str, home: Home) -> Any:
        self.asked.set()
        assert self.may_open.wait(PATIENCE_S)
        if self.problem is not None:
            raise self.problem
        return Opened()


@pytest.fixture
def chooser(monkeypatch: pytest.MonkeyPatch) -> Joined:
    monkeypatch.setattr(module, "_versions", lambda: Versions(ray="2.60.0", python="3.12.3"))
    return Joined()


def place(chooser: Joined, claim: dict[str, float]) -> str:
    with chooser.chosen("w", claim, tags=(), preferred=None) as choice:
        return choice.decision.cluster


def test_work_for_which_home_has_room_waits_for_no_bridge(chooser: Joined) -> None:
    opening, far = in_thread(lambda: place(chooser, {"GPU": 1.0}))
    assert chooser.asked.wait(PATIENCE_S)
    near, at = in_thread(lambda: place(chooser, CPU))
    near.join(PATIENCE_S)
    assert at == ["a"]
    chooser.may_open.set()
    opening.join(PATIENCE_S)
    assert far == ["b"]


def test_a_claim_counts_while_its_bridge_opens_and_is_given_back_if_it_cannot_be_opened(
    chooser: Joined,
) -> None:
    chooser.problem = ClusterUnreachable("b", "nobody there")
    opening, outcome = in_thread(lambda: place(chooser, {"GPU": 1.0}))
    assert chooser.asked.wait(PATIENCE_S)
    assert chooser._ledger.unseen("b") == {"GPU": 1.0}
    chooser.age()
    assert chooser._ledger.unseen("b") == {"GPU": 1.0}
    chooser.may_open.set()
    opening.join(PATIENCE_S)
    assert isinstance(outcome[0], SchedulerError)
    assert not any(chooser._ledger.unseen("b").values())


def test_a_claim_is_given_back_when_what_it_was_for_fails(chooser: Joined) -> None:
    with pytest.raises(TypeError), chooser.chosen("w", CPU, tags=(), preferred=None):
        raise TypeError("missing 1 required positional argument")
    assert not any(chooser._ledger.unseen("a").values())
