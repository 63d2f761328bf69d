"""What runs inside the clusters, for many who ask: looked at every few seconds at most, without secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.environment.redact import redact_text
from ray_multicluster_scheduler.inspection.cluster_processes import Item, processes
from ray_multicluster_scheduler.inspection.clusters import ClusterRecords
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.kept_answer import KeptAnswer
from ray_multicluster_scheduler.service.make_views import Secrets
from ray_multicluster_scheduler.service.views import ProcessList, ProcessView

#: How long an answer is reused: each look asks every cluster for its drivers, actors and tasks.
GOOD_FOR_S = 3.0


class ProcessLook:
    """Asks all clusters what runs there, unless it has just done so."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        clock: Clock,
        read_records: Callable[[], ClusterRecords],
    ) -> None:
        self._config = config
        self._environ = environ
        self._read_records = read_records
        self._kept = KeptAnswer(self._look, clock, good_for_s=GOOD_FOR_S)

    def __call__(self) -> ProcessList:
        """Return what runs on the clusters; not on a thread that runs an event loop."""
        return self._kept()

    def _look(self) -> ProcessList:
        items, problems = asyncio.run(processes(self._config, self._environ))
        secrets = self._secrets()
        return ProcessList(
            items=tuple(_shown(item, secrets) for item in items),
            problems={name: redact_text(problem, secrets) for name, problem in problems.items()},
        )

    def _secrets(self) -> frozenset[str]:
        """Return what our jobs were sent with: a command line may show it."""
        known = Secrets(self._config.clusters)
        return frozenset[str]().union(*(known.of(job) for job in self._read_records().live))


def _shown(item: Item, secrets: Collection[str]) -> ProcessView:
    texts = {"what": redact_text(item.what, secrets), "why": redact_text(item.why, secrets)}
    return ProcessView(**{**asdict(item), **texts})
