"""All executors by their names: those of this package, and those that other packages have registered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.executors.contract import ENTRY_POINTS, Executor, ExecutorKind, Site
from ray_multicluster_scheduler.model.execution import (
    DEFAULT_EXECUTOR,
    UNKNOWN_EXECUTOR,
    Capabilities,
    not_here,
)
from ray_multicluster_scheduler.ports import Clock, ClusterConnection

if TYPE_CHECKING:
    from ray_multicluster_scheduler.store import Store

log = logging.getLogger(__name__)


def _ray_jobs(site: Site) -> Executor:
    from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor  # noqa: PLC0415 - imports aiohttp
    from ray_multicluster_scheduler.ray_api import HttpConnection  # noqa: PLC0415

    assert isinstance(site.connection, HttpConnection)
    return RayJobsExecutor(site.connection)


def _ray_session(site: Site) -> Executor:
    from ray_multicluster_scheduler.executors.ray_session import SessionExecutor  # noqa: PLC0415 - for the engine

    return SessionExecutor(site)


#: Jobs of Ray's own Jobs API.
RAY_JOBS = ExecutorKind(name=DEFAULT_EXECUTOR, can=Capabilities(leaves_result=True), open=_ray_jobs)
#: Sessions: a program outside of the clusters is connected to one of them with Ray Client.
RAY_SESSION = ExecutorKind(
    name="ray-client",
    can=Capabilities(
        keeps_log=False,
        deletable=False,
        restartable=False,
        carries_package=False,
        quick_ends_count=False,
        begun_by_program=True,
    ),
    open=_ray_session,
)
BUILT_IN = {kind.name: kind for kind in (RAY_JOBS, RAY_SESSION)}


class Registry:
    """Finds executors by name. Those of other packages are imported when they are first asked for."""

    def __init__(self, instead: Iterable[ExecutorKind] = ()) -> None:
        """`instead` are taken instead of others of the same names."""
        self._own = {**BUILT_IN, **{kind.name: kind for kind in instead}}
        self._loaded: dict[str, ExecutorKind | None] = {**self._own}

    def find(self, name: str) -> ExecutorKind | None:
        """Return an executor; None: there is none of this name, or it cannot be imported."""
        if name not in self._loaded:
            point = self._others.get(name)
            self._loaded[name] = None if point is None else _load(point)
        return self._loaded[name]

    def can(self, name: str) -> Capabilities:
        """Return what an executor can do; of an unknown one, nothing is expected."""
        kind = self.find(name)
        return UNKNOWN_EXECUTOR if kind is None else kind.can

    def check(self, name: str) -> None:
        """Raise `InvalidRequest` if no job can be submitted to an executor of this name."""
        kind = self.find(name)
        if kind is None:
            known = [each for each, can in self.capabilities().items() if not can.begun_by_program]
            raise InvalidRequest(f"executor: there is no {name!r}; there is {', '.join(known)}")
        if kind.can.begun_by_program:
            raise InvalidRequest(f"executor: nobody can submit to {name!r}; programs begin that themselves")

    def capabilities(self) -> dict[str, Capabilities]:
        """Return what each executor can do, by name."""
        names = (*self._own, *self._others)
        return {name: kind.can for name in names if (kind := self.find(name)) is not None}

    @cached_property
    def _others(self) -> Mapping[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _load(point: EntryPoint) -> ExecutorKind | None:
    """Import an executor. Another package that is broken must not end the scheduler for all others."""
    try:
        kind = point.load()
    except Exception:  # whatever a foreign module raises
        log.exception("the executor %r cannot be imported from %s", point.name, point.value)
        return None
    if not isinstance(kind, ExecutorKind) or kind.name != point.name:
        log.error("%s is not an executor of the name %r", point.value, point.name)
        return None
    return kind


class Executors:
    """The executors on clusters, each opened when it is first used there."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        registry: Registry | None = None,
        offload: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self.registry = registry or Registry()
        self._store = store
        self._clock = clock
        self._offload = offload
        self._opened: WeakKeyDictionary[ClusterConnection, dict[str, Executor]] = WeakKeyDictionary()

    def on(self, connection: ClusterConnection, name: str) -> Executor:
        """Return an executor on a cluster, always the same one."""
        opened = self._opened.setdefault(connection, {})
        if name not in opened:
            kind = self.registry.find(name)
            if kind is None:
                raise ValueError(not_here(name))  # whoever calls this has left its attempts alone
            opened[name] = kind.open(
                Site(connection=connection, store=self._store, offload=self._offload, clock=self._clock)
            )
        return opened[name]

    def can(self, name: str) -> Capabilities:
        """Return what an executor can do; of an unknown one, nothing is expected."""
        return self.registry.can(name)
