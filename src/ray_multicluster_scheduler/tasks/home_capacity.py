"""Free resources of the home cluster: read rarely, and counted between two reads."""

from __future__ import annotations

from collections import deque
from typing import Any

from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, Health
from ray_multicluster_scheduler.model.resources import Resources, shortfall
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.tasks import lazy_import
from ray_multicluster_scheduler.tasks.home import Home
from ray_multicluster_scheduler.tasks.unobserved_claims import UnobservedClaims

#: How long a reading is used: MAX_AGE_S while a claim fits, FULL_AGE_S while it does not.
MAX_AGE_S = 5.0
FULL_AGE_S = 0.25
#: Ray shows the start and the end of tasks and actors after this time at the latest.
LAG_S = 1.0


class HomeCapacity:
    """Free resources of the home cluster, minus what this driver placed since the last reading."""

    def __init__(self, home: Home, unobserved: UnobservedClaims, clock: Clock) -> None:
        self._home = home
        self._unobserved = unobserved
        self._clock = clock
        self._total: dict[str, float] = {}
        self._free: dict[str, float] = {}
        self._read_at = float("-inf")
        #: When tasks were found finished, and what they had claimed. A reading may still show it as used.
        self._ended: deque[tuple[float, Resources]] = deque()

    def fits(self, claim: Resources) -> bool:
        """Tell whether a claim fits, by the last reading and the claims since; a cheap question."""
        self._refresh()
        return self._has_free(claim)

    def fits_now(self, claim: Resources) -> bool:
        """Tell whether a claim fits; reads again if the last reading shows too little."""
        now = self._clock.now()
        if not self._has_free(claim) and now - self._read_at > FULL_AGE_S:
            self._read(now)
        return self._has_free(claim)

    def find_finished(self) -> None:
        """Find the tasks that are finished, on all clusters, and count them no longer."""
        now, dropped = self._clock.now(), self._unobserved.drop_finished()
        if self._home.name in dropped:
            self._ended.append((now, dropped[self._home.name]))
        while self._ended and self._ended[0][0] < now - LAG_S:
            self._ended.popleft()

    def snapshot(self) -> ClusterSnapshot:
        """Return a snapshot of home, in the form that other clusters have."""
        self._refresh()
        used = {name: amount - self._free.get(name, 0.0) for name, amount in self._total.items()}
        return ClusterSnapshot(
            name=self._home.name,
            health=Health.HEALTHY,
            score=1.0,
            total=self._total,
            used=used,
            observed_at=self._read_at,
        )

    def _refresh(self) -> None:
        """Read again if the last reading is too old."""
        now = self._clock.now()
        if now - self._read_at > MAX_AGE_S:
            self.find_finished()
            self._read(now)

    def _has_free(self, claim: Resources) -> bool:
        unobserved = self._unobserved.total(self._home.name)
        left = {name: self._free.get(name, 0.0) - unobserved.get(name, 0.0) for name in claim}
        if not (short := shortfall(claim, left)):
            return True
        # Room that finished tasks of ours have left, which the reading shows too late.
        since = self._read_at - LAG_S
        for name in short:
            ended = sum(resources.get(name, 0.0) for at, resources in self._ended if at >= since)
            most = self._total.get(name, 0.0) - unobserved.get(name, 0.0)
            left[name] = min(left[name] + ended, most)
        return not shortfall(claim, left)

    def _read(self, now: float) -> None:
        self._total, self._free = self._home.resources()
        self._read_at = now
        self._unobserved.drop_sent(self._home.name, before=now - LAG_S)


def finished(refs: list[Any]) -> list[Any]:
    """Return the refs whose values are ready."""
    done, _ = lazy_import.ray().wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
    return list(done)
