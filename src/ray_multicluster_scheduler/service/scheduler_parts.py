"""What a scheduler opens together: it outlives no change of the configuration."""

from __future__ import annotations

from dataclasses import dataclass

from ray_multicluster_scheduler.config.load import Config
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.service.event_hub import EventHub
from ray_multicluster_scheduler.service.job_tokens import JobTokens
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.tokens import Tokens
from ray_multicluster_scheduler.store import SqlStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The components that share one store."""

    #: With the local directories of the clusters' own environments packed.
    config: Config
    store: SqlStore
    packages: PackageStore
    #: Notifies the waiters of this process of changes.
    hub: EventHub
    service: LocalService
    tokens: Tokens
    job_tokens: JobTokens
