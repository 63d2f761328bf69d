"""An answer is kept for a while, for all who ask."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.service.kept_answer import KeptAnswer


class Clock(SystemClock):
    """Its time passes when a test says so."""

    passed = 0.0

    def monotonic(self) -> float:
        return self.passed


def test_an_answer_is_asked_for_again_when_it_is_too_old() -> None:
    clock, answers = Clock(), iter("abc")
    kept = KeptAnswer(lambda: next(answers), clock, good_for_s=2.0)
    assert kept() == kept() == "a"
    clock.passed = 1.9
    assert kept() == "a"
    clock.passed = 2.0
    assert kept() == "b"


def test_an_answer_that_was_long_in_coming_is_good_from_then_on() -> None:
    clock, asked = Clock(), []

    def ask() -> int:
        asked.append(clock.passed)
        clock.passed += 10.0
        return len(asked)

    kept = KeptAnswer(ask, clock, good_for_s=2.0)
    assert [kept(), kept()] == [1, 1]


def test_an_answer_that_was_long_in_coming_can_be_good_for_so_many_times_as_long() -> None:
    clock, asked = Clock(), []

    def ask() -> int:
        asked.append(clock.passed)
        clock.passed += 3.0
        return len(asked)

    kept = KeptAnswer(ask, clock, good_for_s=2.0, times=10.0)
    assert kept() == 1
    clock.passed += 29.0
    assert kept() == 1
    clock.passed += 1.0
    assert kept() == 2


def test_those_who_ask_at_the_same_time_share_one_answer() -> None:
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def ask() -> int:
        asked.append(threading.get_ident())
        begun.set()
        assert go_on.wait(30)
        return len(asked)

    kept = KeptAnswer(ask, Clock(), good_for_s=2.0)
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

    kept = KeptAnswer(ask, Clock(), good_for_s=2.0)
    with pytest.raises(OSError, match="away"):
        kept()
    assert kept() == "there"
