"""Sessions start one after the other where heads share a machine; a wrong one is tried a few times more."""

import threading

import pytest
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.tasks.wire import sessions
from ray_multicluster_scheduler.tasks.wire.sessions import (
    WRONG_TRIES,
    WrongCluster,
    connect_with_retries,
    is_loopback,
    session_gate,
)


@pytest.mark.parametrize("address", ["127.0.0.1:10001", "localhost:10001", "127.0.1.1:5", "[::1]:10001"])
def test_heads_may_share_the_machine_of_a_loopback_address(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["10.0.0.7:10001", "head.example:10001", "[2001:db8::1]:10001"])
def test_other_addresses_wait_for_nobody(address: str) -> None:
    assert not is_loopback(address)
    with session_gate("127.0.0.1:1"), session_gate(address):
        pass


def test_a_session_on_loopback_waits_until_the_one_before_it_has_started() -> None:
    order: list[str] = []
    inside, may_leave = threading.Event(), threading.Event()

    def first() -> None:
        with session_gate("127.0.0.1:1"):
            inside.set()
            may_leave.wait(PATIENCE_S)
            order.append("first")

    def second() -> None:
        with session_gate("localhost:2"):
            order.append("second")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert inside.wait(PATIENCE_S)
    threads[1].start()
    threads[1].join(0.3)
    assert order == []
    may_leave.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == ["first", "second"]


def test_nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "GATE_TIMEOUT_S", 0.1)
    with session_gate("127.0.0.1:1"), session_gate("127.0.0.1:2"):
        pass


def test_a_session_on_a_wrong_cluster_is_tried_again() -> None:
    tries = iter([WrongCluster("the other one"), WrongCluster("the other one"), None])

    def connect() -> str:
        if (problem := next(tries)) is not None:
            raise problem
        return "session"

    assert connect_with_retries(connect, pause_s=0) == "session"


def test_a_session_that_is_always_wrong_is_told_soon() -> None:
    tries = 0

    def connect() -> None:
        nonlocal tries
        tries += 1
        raise WrongCluster("head_address and dashboard name two clusters")

    with pytest.raises(ConnectionError, match="two clusters"):
        connect_with_retries(connect, pause_s=0)
    assert tries == WRONG_TRIES
