"""A look at the clusters where nobody leads: only then, and one for many questions."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.support.clock import ManualClock

from ray_multicluster_scheduler.config.load import parse_config
from ray_multicluster_scheduler.inspection.clusters import SNAPSHOTS_FOR_S, FreshLook
from ray_multicluster_scheduler.ports import Connections

CONFIG = parse_config("clusters:\n  a:\n    head_address: 127.0.0.1:1\n", Path("clusters.yaml"))


class Looks:
    """Counts how often the clusters were opened; there is none to look at."""

    def __init__(self) -> None:
        self.count = 0

    def reach(self, function: Callable[[Connections], Coroutine[Any, Any, Any]]) -> Future[Any]:
        self.count += 1
        answer: Future[Any] = Future()
        answer.set_result(asyncio.run(function({})))
        return answer


def test_questions_one_after_the_other_share_a_look_while_it_is_fresh() -> None:
    looks, clock = Looks(), ManualClock()
    look = FreshLook(CONFIG, looks.reach, clock, origin="ours")
    assert look() == look() == {}
    assert looks.count == 1
    clock.advance(SNAPSHOTS_FOR_S + 0.1)
    look()
    assert looks.count == 2
