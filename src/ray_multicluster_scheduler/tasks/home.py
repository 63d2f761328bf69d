"""The home cluster of this program: plain Ray calls go there, and all results are ObjectRefs of it.

Inside a job it is the job's own cluster, joined natively. A program that has called `ray.init` keeps its
cluster. Any other program gets a Ray Client connection to the cluster that is chosen for its first work.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ray_multicluster_scheduler.errors import ClusterUnreachable, HomeLost
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Health
from ray_multicluster_scheduler.model.resources import Resources, plus, shortfall
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.tasks import lazy_import

log = logging.getLogger(__name__)

#: The name of a home cluster that is not configured.
UNNAMED = "(home)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The cluster that this program is connected to."""

    name: str
    #: This package opened the connection, so it closes it.
    connected_by_us: bool
    #: Connected over Ray Client, where each query is a round trip.
    over_client: bool
    #: The program's own part of its environment.
    program_env: Mapping[str, Any] = field(default_factory=dict)

    def resources(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return total and free resources of the cluster."""
        ray = lazy_import.ray()
        return _without_node_ids(ray.cluster_resources()), _without_node_ids(ray.available_resources())

    def read_package(self, name: str) -> bytes | None:
        """Return a package from the home cluster, such as the job's working_dir, or None."""
        kv = lazy_import.module("ray.experimental.internal_kv")
        content: bytes | None = kv._internal_kv_get(f"gcs://{name}")
        return content

    @property
    def namespace(self) -> str:
        """Return the namespace of named actors, which is used on the other clusters too."""
        return str(lazy_import.ray().get_runtime_context().namespace)

    @property
    def is_lost(self) -> bool:
        """Tell whether the connection is lost. After that a call to Ray would start a local cluster."""
        return not (over_client() if self.over_client else is_connected())

    @contextmanager
    def raising_home_lost(self) -> Iterator[None]:
        """Raise `HomeLost` if home is lost, whatever Ray raises."""
        if self.is_lost:
            raise HomeLost(self.name, "Ray is not connected any more")
        try:
            yield
        except BaseException as problem:
            if not self._is_loss(problem):
                raise
            raise HomeLost(self.name, _first_line(problem)) from problem

    @contextmanager
    def ignoring_loss(self) -> Iterator[None]:
        """Ignore errors that come from the loss of home."""
        try:
            yield
        except BaseException as problem:
            if not self._is_loss(problem):
                raise
            log.info("home cluster %r is lost: %s", self.name, _first_line(problem))

    def leave(self) -> None:
        """Disconnect, if this package connected; Ray Client refuses a new connection beside a lost one."""
        if self.connected_by_us:
            with self.ignoring_loss():
                ray = lazy_import.ray()
                (ray.util.client.ray.disconnect if self.over_client and self.is_lost else ray.shutdown)()

    def _is_loss(self, problem: BaseException) -> bool:
        """Tell whether an error comes from the loss of home; Ray has no exception type for it."""
        by_user_code = isinstance(problem, lazy_import.ray().exceptions.RayError)  # from user code
        is_connection = isinstance(problem, (ConnectionError, lazy_import.module("grpc").RpcError))
        return (is_connection and not by_user_code) or (isinstance(problem, Exception) and self.is_lost)


def is_connected() -> bool:
    """Tell whether this program is connected to a cluster."""
    return bool(lazy_import.ray().is_initialized())


def join_natively() -> None:
    """Join the cluster that this job runs on."""
    lazy_import.wire("sessions").drop_noise()
    lazy_import.ray().init()


def connect(
    spec: ClusterSpec, runtime_env: Mapping[str, Any], token: str | None, session_name: str | None
) -> None:
    """Connect to a cluster over Ray Client; `session_name` is from its dashboard, None if unknown."""
    ray, sessions = lazy_import.ray(), lazy_import.wire("sessions")
    try:
        metadata = sessions.auth_metadata(
            sessions.Secret(token),
            cluster=spec.name,
            address=spec.head_address,
            over_https=spec.is_over_https,
        )
    except sessions.TokenInTheClear as problem:
        raise ClusterUnreachable(spec.name, str(problem)) from problem

    sessions.drop_noise()

    def connect_once() -> None:
        with sessions.session_gate(spec.head_address):
            ray.init(f"ray://{spec.head_address}", runtime_env=dict(runtime_env), _metadata=metadata)
        with ExitStack() as undo:
            undo.callback(ray.shutdown)
            sessions.check_session(spec.name, session_name, runtime_env)
            undo.pop_all()

    try:
        sessions.connect_with_retries(connect_once)
    except sessions.NOT_CONNECTED as problem:
        raise ClusterUnreachable(spec.name, f"no Ray Client session: {problem}") from problem


def over_client() -> bool:
    """Tell whether this program is connected over Ray Client."""
    return bool(lazy_import.ray().util.client.ray.is_connected())


def current_runtime_env() -> dict[str, Any]:
    """Return the runtime_env that this program runs with."""
    runtime_env = lazy_import.ray().get_runtime_context().runtime_env
    return dict(json.loads(runtime_env) if isinstance(runtime_env, str) else runtime_env)


def configured_name(snapshots: Mapping[str, ClusterSnapshot]) -> str:
    """Return the name of the configured cluster with the nodes of this connection, or `UNNAMED`."""
    here = {node["NodeID"] for node in lazy_import.ray().nodes()}
    for name, snapshot in snapshots.items():
        if here & {node.node_id for node in snapshot.nodes or ()}:
            return name
    return UNNAMED


def _first_line(problem: BaseException) -> str:
    details = getattr(problem, "details", None)
    text = details() if callable(details) else str(problem)
    return (str(text or "").strip() or type(problem).__name__).splitlines()[0]


def _without_node_ids(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in amounts.items() if not name.startswith("node:")}


# Resources claimed by tasks and actors that no snapshot of their cluster shows yet.


#: Returns the refs whose values are ready.
Finished = Callable[[list[Any]], list[Any]]
#: Of each cluster so many tasks are asked about at once, the oldest: they are likely to end first.
MAX_ASKED = 1000


@dataclass(slots=True, eq=False)
class UnobservedClaim:
    """The resources of one task or actor."""

    resources: Resources
    #: When it was sent (wall clock); None while it waits for a bridge: no snapshot can show it.
    sent_at: float | None = None
    #: The result of a task, to notice its end; None for an actor, and before the task is sent.
    ref: Any = None


class UnobservedClaims:
    """Claims per cluster that are too recent for its snapshot.

    The refs held here keep results alive, so claims are dropped within seconds.
    """

    def __init__(self, finished: Finished) -> None:
        self._finished = finished
        self._claims: dict[str, list[UnobservedClaim]] = {}
        self._totals: dict[str, dict[str, float]] = {}

    def add(self, cluster: str, claim: UnobservedClaim) -> None:
        """Add the claim of a task or an actor that was just placed."""
        self._claims.setdefault(cluster, []).append(claim)
        self._totals[cluster] = plus(self._totals.get(cluster, {}), claim.resources)

    def remove(self, cluster: str, claim: UnobservedClaim) -> None:
        """Remove the claim of a task or an actor that was not sent after all."""
        self._keep(cluster, (each for each in self._claims.get(cluster, ()) if each is not claim))

    def total(self, cluster: str) -> Resources:
        """Return the sum of the claims on a cluster."""
        return self._totals.get(cluster, {})

    def drop_sent(self, cluster: str, *, before: float) -> None:
        """Drop claims sent before a given time: a later snapshot shows them."""
        claims = self._claims.get(cluster, ())
        self._keep(cluster, (claim for claim in claims if claim.sent_at is None or claim.sent_at >= before))

    def drop_finished(self) -> dict[str, Resources]:
        """Drop the claims of finished tasks, and return their sum for each cluster that had some.

        One question for all clusters: over Ray Client it is a round trip.
        """
        refs = [
            claim.ref
            for claims in self._claims.values()
            for claim in itertools.islice((each for each in claims if each.ref is not None), MAX_ASKED)
        ]
        # Ray Client answers with new objects, which equal the old ones.
        done = set(self._finished(refs)) if refs else set()
        dropped: dict[str, Resources] = {}
        for cluster, claims in self._claims.items() if done else ():
            if ended := [claim.resources for claim in claims if claim.ref in done]:
                dropped[cluster] = _sum(ended)
                self._keep(cluster, (claim for claim in claims if claim.ref not in done))
        return dropped

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return the clusters that have had claims."""
        return tuple(self._claims)

    def _keep(self, cluster: str, claims: Iterable[UnobservedClaim]) -> None:
        kept = list(claims)
        self._claims[cluster], self._totals[cluster] = kept, _sum(claim.resources for claim in kept)


def _sum(claims: Iterable[Resources]) -> dict[str, float]:
    total: dict[str, float] = {}
    for claim in claims:
        total = plus(total, claim)
    return total


# Free resources of the home cluster: read rarely, and counted between two reads.


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
