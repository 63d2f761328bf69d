"""What the service works with, and what is handed to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.uploads import Uploads
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.service.event_hub import EventHub
from ray_multicluster_scheduler.service.job_service import JobService
from ray_multicluster_scheduler.service.tail import Reach, Tails
from ray_multicluster_scheduler.service.tokens import Tokens
from ray_multicluster_scheduler.service.views import ClusterReport, ProcessList
from ray_multicluster_scheduler.service.wait_numbers import WaitNumbers
from ray_multicluster_scheduler.store_ports import JobStore

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.explain import Explainer

T = TypeVar("T")


class _Later:
    """Stands for an object that is made when it is first used: what makes it is slow to import."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    def _it(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._it(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._it()(*args, **kwargs)


def later(make: Callable[[], T]) -> T:
    """Return what `make` returns, which is called when that is first used."""
    return cast(T, _Later(make))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """The components that the service uses."""

    config: Config
    #: The same as it was read: without packed directories and the address of a server.
    loaded: Config
    store: JobStore
    packages: PackageStore
    clock: Clock
    hub: EventHub
    jobs: JobService
    explainer: Explainer
    #: Probes the clusters when there is no leader; returns None when the published snapshots are fresh.
    look: Callable[[], Mapping[str, ClusterSnapshot] | None]
    #: Why the jobs in the queue wait.
    waits: WaitNumbers
    #: Asks the clusters what runs there.
    processes: Callable[[], ProcessList]
    #: Examines these clusters, or all of them (None), with a short job that may take so many seconds.
    run_doctor: Callable[[Sequence[str] | None, float], tuple[ClusterReport, ...]]
    #: Packages that callers from other processes have uploaded.
    uploads: Uploads
    #: Runs a coroutine that talks to clusters.
    reach: Reach
    tails: Tails
    tokens: Tokens
    #: Says why no job is accepted at all; None: jobs are.
    closed: Callable[[], str | None] = lambda: None
    #: Says which clusters are also used by another queue of this machine, for whoever submits a job.
    kept_apart: Callable[[], Sequence[str]] = tuple
