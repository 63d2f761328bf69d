"""The bridges of this driver: one per other cluster, opened with the first task or actor sent there."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from ray_multicluster_scheduler import asyncio_tools, errors
from ray_multicluster_scheduler.errors import ClusterUnreachable, SchedulerError
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.tasks import lazy_import
from ray_multicluster_scheduler.tasks.callables import UserCallable

log = logging.getLogger(__name__)

#: Time to start the bridge and its session on the other cluster, which may be loaded.
OPEN_TIMEOUT_S = 150.0
#: After this time a warning says what the program waits for.
SLOW_S = 10.0
CLOSE_TIMEOUT_S = 10.0
#: Of the bridges. In the program's own namespace, which often has no name, Ray would advise the user about
#: an actor that is not his.
NAMESPACE = "raymc"
#: Most calls in flight through one bridge.
MAX_CALLS = 10_000


class OpenBridge:
    """An open bridge: the handle of its actor, and the code that was sent over it."""

    def __init__(self, cluster: str, actor: Any, bridge_id: str) -> None:
        self.cluster = cluster
        self.bridge_id = bridge_id
        self.actor = actor
        self._sent: set[str] = set()
        #: Resolves, or fails, when the other cluster or the bridge is lost.
        self._lost = actor.lost.remote()

    @property
    def is_lost(self) -> bool:
        """Tell whether the other cluster or the bridge is lost."""
        done, _ = lazy_import.ray().wait([self._lost], timeout=0)
        return bool(done)

    def send_code(self, code: UserCallable) -> str:
        """Send a function or class, unless it was sent before, and return its digest."""
        digest, content = code.pickled
        if digest not in self._sent:
            self.actor.register_code.remote(digest, content)
            self._sent.add(digest)
        return digest

    def close(self) -> None:
        """Close the bridge and end everything that was started through it."""
        ray = lazy_import.ray()
        try:
            ray.get(self.actor.close.remote(), timeout=CLOSE_TIMEOUT_S)
        except ray.exceptions.RayError as error:
            log.info("the bridge to cluster %r did not close by itself: %s", self.cluster, error)
        ray.kill(self.actor)


class Bridges:
    """Opens one bridge per cluster, and a new one after a cluster was lost."""

    def __init__(
        self,
        environment: Callable[[ClusterSpec], Mapping[str, Any]],
        session_name: Callable[[ClusterSpec], str | None],
        environ: Mapping[str, str],
    ) -> None:
        self._environment = environment
        self._session_name = session_name
        self._environ = environ
        self._lock = threading.Lock()
        #: One lock per cluster: opening takes seconds, and other clusters do not wait for it.
        self._opening: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._open: dict[str, OpenBridge] = {}
        #: Bridges that lost their cluster. They may still run its tasks again at home.
        self._lost: list[OpenBridge] = []
        self._closed = False

    def to(self, spec: ClusterSpec, *, namespace: str, purpose: str) -> OpenBridge:
        """Return the bridge to a cluster, opened if necessary; raise `ClusterError` if that fails."""
        with self._lock:
            opening = self._opening[spec.name]
        with opening:
            existing = self._open.get(spec.name)
            if existing is not None and not existing.is_lost:
                return existing
            bridge = self._start(spec, namespace=namespace, purpose=purpose)
            with self._lock:
                if not self._closed:
                    self._lost += [existing] if existing is not None else []
                    self._open[spec.name] = bridge
                    return bridge
        bridge.close()
        raise SchedulerError("the scheduler was stopped while a bridge was being opened")

    def close(self) -> None:
        """Close all bridges."""
        with self._lock:
            self._closed = True
            bridges, self._open, self._lost = [*self._open.values(), *self._lost], {}, []
        for bridge in bridges:
            bridge.close()

    def _start(self, spec: ClusterSpec, *, namespace: str, purpose: str) -> OpenBridge:
        ray, bridge_id = lazy_import.ray(), uuid.uuid4().hex[:12]
        send_by_value()
        connection = lazy_import.wire("connection").ConnectionSpec(
            bridge_id=bridge_id,
            name=spec.name,
            address=spec.head_address,
            runtime_env=self._environment(spec),
            namespace=namespace,
            purpose=purpose,
            session_name=self._session_name(spec),
            over_https=spec.is_over_https,
        )
        token = lazy_import.wire("sessions").Secret(token_of(spec, self._environ))
        actor_class = ray.remote(lazy_import.wire("bridge").Bridge)
        name = f"raymc bridge to {spec.name} {bridge_id}"
        actor = actor_class.options(
            num_cpus=0, max_concurrency=MAX_CALLS, name=name, namespace=NAMESPACE, lifetime="detached"
        ).remote(connection)
        actor.watch_driver.remote([actor.closed.remote()])
        try:
            about = _wait_until_open(spec.name, actor.open.remote(token))
        except ray.exceptions.RayError as error:
            ray.kill(actor)
            raise ClusterUnreachable(
                spec.name, f"the bridge to it could not be opened: {_short(error)}"
            ) from error
        log.info("opened a bridge to cluster %r: %s", spec.name, about)
        return OpenBridge(spec.name, actor, bridge_id)


def _wait_until_open(cluster: str, opening: Any) -> Any:
    """Wait until a bridge is open; log a warning if that takes long."""
    ray = lazy_import.ray()
    if not ray.wait([opening], timeout=SLOW_S)[0]:
        log.warning(
            "the first work for cluster %r has waited %.0f s for a session there: its environment may have "
            "to be installed first",
            cluster,
            SLOW_S,
        )
    return ray.get(opening, timeout=OPEN_TIMEOUT_S)


def token_of(spec: ClusterSpec, environ: Mapping[str, str]) -> str | None:
    """Return the token of a cluster, or None if it has none."""
    return (environ.get(spec.auth_token_env, "").strip() or None) if spec.auth_token_env else None


def send_by_value() -> None:
    """Pickle `wire` and what it imports by value: clusters need not have this package installed."""
    cloudpickle = lazy_import.ray().cloudpickle
    for module in (lazy_import.module("ray_multicluster_scheduler.tasks.wire"), asyncio_tools, errors):
        cloudpickle.register_pickle_by_value(module)


def _short(error: Exception) -> str:
    return str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
