"""What the leader sees of every cluster, with what it knows besides.

The planner decides by this and nothing else, and it is published as it is: so `explain` and the dry run, in
whichever process, decide as the leader does.
"""

from __future__ import annotations

from dataclasses import replace

from ray_multicluster_scheduler.engine.board import Board
from ray_multicluster_scheduler.engine.paces import Paces
from ray_multicluster_scheduler.engine.throttles import Throttles
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot


class Outlook:
    """Puts together what the watch has seen, the throttles, the paces and the warm environments."""

    def __init__(self, board: Board, throttles: Throttles, paces: Paces) -> None:
        self._board = board
        self._throttles = throttles
        self._paces = paces

    def snapshots(self) -> dict[str, ClusterSnapshot]:
        """Return every cluster as the planner is to see it."""
        return {name: self._complete(seen) for name, seen in self._throttles.snapshots().items()}

    def _complete(self, seen: ClusterSnapshot) -> ClusterSnapshot:
        pace = self._paces.of(seen.name)
        return replace(
            seen,
            start_limit=pace.starts,
            start_s=pace.shortest_s,
            warm=self._board.warm(seen.name, seen.session_name),
        )
