"""This driver's bridges: one per other cluster, opened when the first work goes there."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from ray_multicluster_scheduler import errors
from ray_multicluster_scheduler.errors import ClusterUnreachable, SchedulerError
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.tasks import lazy_import
from ray_multicluster_scheduler.tasks.callables import UserCallable

log = logging.getLogger(__name__)

#: Starting the bridge and the session on the other cluster; a loaded cluster takes its time.
OPEN_TIMEOUT_S = 150.0
#: After this the user is told what the program waits for.
SLOW_S = 10.0
CLOSE_TIMEOUT_S = 10.0
#: Calls that may be under way through one bridge.
MAX_CALLS = 10_000


class OpenBridge:
    """One open bridge."""

    def __init__(self, cluster: str, actor: Any, bridge_id: str) -> None:
        self.cluster = cluster
        self.bridge_id = bridge_id
        self.actor = actor
        self._sent: set[str] = set()
        #: Has a value, or an error, once the other cluster or the bridge is gone.
        self._lost = actor.lost.remote()

    @property
    def is_lost(self) -> bool:
        """Tell whether nothing can be sent over it any more."""
        done, _ = lazy_import.ray().wait([self._lost], timeout=0)
        return bool(done)

    def send_code(self, code: UserCallable) -> str:
        """Make a function or class known on the other side and return its digest."""
        digest, content = code.pickled
        if digest not in self._sent:
            self.actor.register_code.remote(digest, content)
            self._sent.add(digest)
        return digest

    def close(self) -> None:
        """End the bridge and all that was started through it."""
        ray = lazy_import.ray()
        try:
            ray.get(self.actor.close.remote(), timeout=CLOSE_TIMEOUT_S)
        except ray.exceptions.RayError as error:
            log.info("the bridge to cluster %r did not close by itself: %s", self.cluster, error)
        ray.kill(self.actor)


class Bridges:
    """Opens a bridge per cluster, and a new one when the cluster was lost and is back."""

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
        #: One per cluster: opening takes seconds, and work for other clusters does not wait for it.
        self._opening: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._open: dict[str, OpenBridge] = {}
        #: They have lost their cluster, and may still be repeating its tasks at home.
        self._lost: list[OpenBridge] = []
        self._closed = False

    def to(self, spec: ClusterSpec, *, namespace: str, purpose: str) -> OpenBridge:
        """Return the bridge to a cluster, opening it if need be; `ClusterError` when that fails."""
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
        token = lazy_import.wire("auth").Secret(token_of(spec, self._environ))
        actor_class = ray.remote(lazy_import.wire("bridge").Bridge)
        name = f"raymc bridge to {spec.name} {bridge_id}"
        actor = actor_class.options(
            num_cpus=0, max_concurrency=MAX_CALLS, name=name, lifetime="detached"
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
    """Wait until a bridge is open, and say so when that takes long."""
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
    """Return the token of a cluster, if it has one."""
    return (environ.get(spec.auth_token_env, "").strip() or None) if spec.auth_token_env else None


def send_by_value() -> None:
    """Have our own classes sent with the calls: nothing of ours need be installed on a cluster."""
    cloudpickle = lazy_import.ray().cloudpickle
    for module in (lazy_import.module("ray_multicluster_scheduler.tasks.wire"), errors):
        cloudpickle.register_pickle_by_value(module)


def _short(error: Exception) -> str:
    return str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
