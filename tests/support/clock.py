"""The time as a test moves it on."""

from tests.support.builders import NOW


class ManualClock:
    """`ports.Clock` that stands still until a test says how much time has passed."""

    def __init__(self, at: float = NOW) -> None:
        self._at = at
        self.passed_s = 0.0

    def advance(self, seconds: float) -> None:
        self.passed_s += seconds

    def now(self) -> float:
        return self._at + self.passed_s

    def monotonic(self) -> float:
        return self.passed_s

    def uptime(self) -> float:
        return self.passed_s

    def boot(self) -> str:
        return "boot"
