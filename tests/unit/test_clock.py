"""A clock that never jumps, on a machine whose clock is set and whose threads are kept waiting."""

from ray_multicluster_scheduler.clock import SteadyClock, SystemClock

BORN = 1_000.0


class BusyMachine(SystemClock):
    """Its time is `BORN` more than its uptime. While the time is read, `stalls` seconds may pass."""

    def __init__(self, *stalls: float) -> None:
        self.stalls = list(stalls)
        self.set_by = 0.0
        self._uptime = 50.0

    def now(self) -> float:
        told = BORN + self._uptime + self.set_by
        self._uptime += self.stalls.pop(0) if self.stalls else 0.0
        return told

    def uptime(self) -> float:
        return self._uptime


def test_a_thread_that_was_kept_waiting_between_two_clocks_has_not_seen_the_clock_set() -> None:
    steady = SteadyClock(machine := BusyMachine(3.0, 4.0))
    assert steady.offset == BORN
    machine.stalls = [5.0, 2.0, 7.0]
    assert steady.step_s() == 0.0


def test_a_machine_that_is_always_busy_gets_the_best_answer_there_is() -> None:
    steady = SteadyClock(BusyMachine(*[9.0] * 5, 0.5, *[9.0] * 1000))
    assert abs(steady.offset - BORN) <= 0.5


def test_a_clock_that_was_set_is_told_by_how_much() -> None:
    steady = SteadyClock(machine := BusyMachine())
    machine.set_by, machine.stalls = -30.0, [3.0]
    assert steady.step_s() == -30.0
