"""An answer is kept for a while, for all who ask."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.clock import CachedFor


def test_an_answer_is_asked_for_again_when_it_is_too_old() -> None:
    clock, answers = ManualClock(), iter("abc")
    kept = CachedFor(lambda: next(answers), clock, good_for_s=2.0)
    assert kept() == kept() == "a"
    clock.advance(1.9)
    assert kept() == "a"
    clock.advance(0.1)
    assert kept() == "b"


def test_an_answer_that_was_long_in_coming_is_good_from_then_on() -> None:
    clock, asked = ManualClock(), []

    def ask() -> int:
        asked.append(clock.monotonic())
        clock.advance(10.0)
        return len(asked)

    kept = CachedFor(ask, clock, good_for_s=2.0)
    assert [kept(), kept()] == [1, 1]


def test_an_answer_that_was_long_in_coming_can_be_good_for_so_many_times_as_long() -> None:
    clock, asked = ManualClock(), []

    def ask() -> int:
        asked.append(clock.monotonic())
        clock.advance(3.0)
        return len(asked)

    kept = CachedFor(ask, clock, good_for_s=2.0, times=10.0)
    assert kept() == 1
    clock.advance(29.0)
    assert kept() == 1
    clock.advance(1.0)
    assert kept() == 2


def test_those_who_ask_at_the_same_time_share_one_answer() -> None:
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def ask() -> int:
        asked.append(threading.get_ident())
        begun.set()
        assert go_on.wait(30)
        return len(asked)

    kept = CachedFor(ask, ManualClock(), good_for_s=2.0)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(kept) for _ in range(8)]
        assert begun.wait(30)
        go_on.set()
        assert {answer.result(30) for answer in answers} == {1}


def test_a_failure_is_not_kept() -> None:
    answers = iter([OSError("away"), "there"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    kept = CachedFor(ask, ManualClock(), good_for_s=2.0)
    with pytest.raises(OSError, match="away"):
        kept()
    assert kept() == "there"
