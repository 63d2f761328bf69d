"""Home is asked rarely, and counted in between."""

from typing import Any

from ray_multicluster_scheduler.tasks.home_capacity import FULL_AGE_S, LAG_S, MAX_AGE_S, HomeRoom
from ray_multicluster_scheduler.tasks.unobserved_claims import Entry, Ledger


class Cpus:
    """A home whose free CPUs the test sets, and which counts how often it is asked."""

    name = "home"

    def __init__(self, free: float) -> None:
        self.free = free
        self.asked = 0

    def resources(self) -> tuple[dict[str, float], dict[str, float]]:
        self.asked += 1
        return {"CPU": 4.0}, {"CPU": self.free}


class Hands:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def a_room(free: float) -> tuple[Any, Cpus, Ledger, Hands]:
    home, ledger, clock = Cpus(free), Ledger(), Hands()
    return HomeRoom(home, ledger, clock), home, ledger, clock  # type: ignore[arg-type]


def test_what_was_placed_since_the_reading_is_not_free() -> None:
    room, home, ledger, clock = a_room(free=2.0)
    assert room.fits({"CPU": 2.0})
    ledger.add("home", Entry({"CPU": 1.0}, clock.now()))
    assert not room.fits({"CPU": 2.0})
    assert room.fits({"CPU": 1.0})
    assert home.asked == 1


def test_a_reading_that_shows_room_is_used_for_seconds() -> None:
    room, home, _, clock = a_room(free=2.0)
    for _ in range(100):
        assert room.fits({"CPU": 1.0})
    clock.at += MAX_AGE_S + 1
    assert room.fits({"CPU": 1.0})
    assert home.asked == 2


def test_a_full_home_is_asked_again_soon_and_not_for_every_submit() -> None:
    room, home, _, clock = a_room(free=0.0)
    for _ in range(100):
        assert not room.fits({"CPU": 1.0})
    assert home.asked == 1
    home.free = 1.0
    clock.at += FULL_AGE_S + 0.01
    assert room.fits({"CPU": 1.0})


def test_a_new_reading_shows_what_was_placed_a_while_before_it() -> None:
    room, home, ledger, clock = a_room(free=4.0)
    assert room.fits({"CPU": 4.0})
    ledger.add("home", Entry({"CPU": 4.0}, clock.now()))
    home.free = 0.0
    clock.at += LAG_S + 0.5
    assert not room.fits({"CPU": 1.0})
    home.free = 4.0
    clock.at += LAG_S
    assert room.fits({"CPU": 4.0})


def test_a_home_that_was_never_asked_about_room_still_shows_what_it_has() -> None:
    room, home, _, _ = a_room(free=3.0)
    seen = room.snapshot()
    assert (seen.total, seen.used) == ({"CPU": 4.0}, {"CPU": 1.0})
    assert home.asked == 1
