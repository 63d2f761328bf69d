"""Home is asked rarely, and counted in between."""

from typing import Any

from tests.support.clock import ManualClock

from ray_multicluster_scheduler.tasks.home import (
    FULL_AGE_S,
    LAG_S,
    MAX_AGE_S,
    HomeCapacity,
    UnobservedClaim,
    UnobservedClaims,
)


class Cpus:
    """A home whose free CPUs the test sets, and which counts how often it is asked."""

    name = "home"

    def __init__(self, free: float) -> None:
        self.free = free
        self.asked = 0

    def resources(self) -> tuple[dict[str, float], dict[str, float]]:
        self.asked += 1
        return {"CPU": 4.0}, {"CPU": self.free}


def all_are_finished(refs: list[Any]) -> list[Any]:
    return refs


def a_capacity(free: float) -> tuple[Any, Cpus, UnobservedClaims, ManualClock]:
    home, unobserved, clock = Cpus(free), UnobservedClaims(all_are_finished), ManualClock()
    return HomeCapacity(home, unobserved, clock), home, unobserved, clock  # type: ignore[arg-type]


def test_what_was_placed_since_the_reading_is_not_free() -> None:
    capacity, home, unobserved, clock = a_capacity(free=2.0)
    assert capacity.fits({"CPU": 2.0})
    unobserved.add("home", UnobservedClaim({"CPU": 1.0}, clock.now()))
    assert not capacity.fits({"CPU": 2.0})
    assert capacity.fits({"CPU": 1.0})
    assert home.asked == 1


def test_a_reading_that_shows_room_is_used_for_seconds() -> None:
    capacity, home, _, clock = a_capacity(free=2.0)
    for _ in range(100):
        assert capacity.fits({"CPU": 1.0})
    clock.advance(MAX_AGE_S + 1)
    assert capacity.fits({"CPU": 1.0})
    assert home.asked == 2


def test_a_full_home_is_asked_again_soon_and_not_for_every_submit() -> None:
    capacity, home, _, clock = a_capacity(free=0.0)
    for _ in range(100):
        assert not capacity.fits({"CPU": 1.0})
        assert not capacity.fits_now({"CPU": 1.0})
    assert home.asked == 1
    home.free = 1.0
    clock.advance(FULL_AGE_S + 0.01)
    assert capacity.fits_now({"CPU": 1.0})


def test_a_new_reading_shows_what_was_placed_a_while_before_it() -> None:
    capacity, home, unobserved, clock = a_capacity(free=4.0)
    assert capacity.fits({"CPU": 4.0})
    unobserved.add("home", UnobservedClaim({"CPU": 4.0}, clock.now()))
    home.free = 0.0
    clock.advance(LAG_S + 0.5)
    assert not capacity.fits_now({"CPU": 1.0})
    home.free = 4.0
    clock.advance(LAG_S)
    assert capacity.fits_now({"CPU": 4.0})


def test_however_soon_a_task_has_ended_the_next_one_finds_its_room() -> None:
    capacity, home, unobserved, clock = a_capacity(free=4.0)
    for number in range(1000):
        if not capacity.fits({"CPU": 1.0}):
            capacity.find_finished()
            assert capacity.fits_now({"CPU": 1.0})
        unobserved.add("home", UnobservedClaim({"CPU": 1.0}, clock.now(), number))
    assert home.asked == 1


def test_a_reading_that_still_shows_a_finished_task_does_not_make_home_full() -> None:
    capacity, home, unobserved, clock = a_capacity(free=4.0)
    for number in range(100):
        if not capacity.fits({"CPU": 4.0}):
            capacity.find_finished()
            assert capacity.fits_now({"CPU": 4.0})
        unobserved.add("home", UnobservedClaim({"CPU": 4.0}, clock.now(), number))
        clock.advance(0.3)  # that task ends, and Ray still shows it
        home.free = 0.0


def test_what_others_took_after_a_task_has_ended_is_not_free() -> None:
    capacity, home, unobserved, clock = a_capacity(free=4.0)
    assert capacity.fits({"CPU": 4.0})
    unobserved.add("home", UnobservedClaim({"CPU": 4.0}, clock.now(), "ended"))
    capacity.find_finished()
    clock.advance(LAG_S + 0.1)
    home.free = 0.0
    capacity.find_finished()
    assert capacity.fits({"CPU": 4.0})  # by the old reading
    unobserved.add("home", UnobservedClaim({"CPU": 1.0}, clock.now()))
    assert not capacity.fits_now({"CPU": 4.0})


def test_finished_tasks_leave_no_more_room_than_there_is() -> None:
    capacity, _, unobserved, clock = a_capacity(free=4.0)
    assert capacity.fits({"CPU": 4.0})
    for number in range(4):
        unobserved.add("home", UnobservedClaim({"CPU": 1.0}, clock.now(), number))
    capacity.find_finished()
    unobserved.add("home", UnobservedClaim({"CPU": 3.0}, clock.now()))
    assert capacity.fits({"CPU": 1.0})
    assert not capacity.fits_now({"CPU": 2.0})


def test_a_home_that_was_never_asked_about_room_still_shows_what_it_has() -> None:
    capacity, home, _, _ = a_capacity(free=3.0)
    seen = capacity.snapshot()
    assert (seen.total, seen.used) == ({"CPU": 4.0}, {"CPU": 1.0})
    assert home.asked == 1
