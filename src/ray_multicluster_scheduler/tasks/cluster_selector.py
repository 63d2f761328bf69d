"""Connects to the home cluster and selects a cluster for each task and actor."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import platform
import socket
import tempfile
import threading
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ray_multicluster_scheduler.clock import jitter
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.placement.capacity import Room, open_rooms
from ray_multicluster_scheduler.core.placement.inputs import drain_fields
from ray_multicluster_scheduler.core.placement.queue import line_key
from ray_multicluster_scheduler.environment.compose import (
    compose,
    for_ray_client,
    has_overlay,
    normalise,
    remove_overlay,
)
from ray_multicluster_scheduler.environment.options import (
    ATTEMPT_VAR,
    CLUSTER_VAR,
    OLDER_CLUSTER_VAR,
    PACKAGE_VAR,
    RESERVED,
    SUBMISSION_ID_VAR,
)
from ray_multicluster_scheduler.errors import (
    ClusterError,
    InvalidRequest,
    NeverFits,
    NoClusterAvailable,
    PackageProblem,
    SchedulerError,
)
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, DrainMark, Health
from ray_multicluster_scheduler.model.decision import ClusterView, QueuedJob
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.packages.runtime_env import localise, package_names
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.to_cluster import (
    takes_own_package,
    with_overlay_code,
    with_own_package,
    without_own_package,
)
from ray_multicluster_scheduler.ports import Clock, ClusterPackages
from ray_multicluster_scheduler.ray_api.http_connection import ClusterState, HttpConnection, open_connection
from ray_multicluster_scheduler.tasks import home as homes
from ray_multicluster_scheduler.tasks import lazy_import
from ray_multicluster_scheduler.tasks.bridges import Bridges, OpenBridge, token_of
from ray_multicluster_scheduler.tasks.home import (
    LAG_S,
    Home,
    HomeCapacity,
    UnobservedClaim,
    UnobservedClaims,
    finished,
)
from ray_multicluster_scheduler.tasks.placement import Decision, NoRoomNow, Versions, no_room, place

log = logging.getLogger(__name__)
T = TypeVar("T")
HttpConnections = Mapping[str, HttpConnection]
STOP_TIMEOUT_S = 5.0


class ClusterObserver:
    """A thread that keeps snapshots of all clusters up to date over HTTP.

    Nothing is opened before the first query.
    """

    def __init__(self, config: Config, environ: Mapping[str, str], clock: Clock) -> None:
        self._config = config
        self._environ = environ
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready: concurrent.futures.Future[_Observing] = concurrent.futures.Future()

    def snapshots(self) -> Mapping[str, ClusterSnapshot]:
        """Return the last snapshot of every cluster; the first call waits for the first ones."""
        running = self._running()
        _result(running.first_look)
        return running.watch.snapshots()

    def call(self, function: Callable[[HttpConnections], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine with the connections to the clusters on the thread, and return its result."""
        running = self._running()
        try:
            return asyncio.run_coroutine_threadsafe(function(running.connections), running.loop).result()
        except concurrent.futures.CancelledError as ended:
            raise SchedulerError("the clusters are no longer observed; the scheduler was stopped") from ended

    def close(self) -> None:
        """Stop the thread."""
        with self._lock:
            if self._thread is None:
                return
            thread, ready = self._thread, self._ready
            self._thread, self._ready = None, concurrent.futures.Future()
        with suppress(SchedulerError, RuntimeError):  # the thread has ended already
            running = _result(ready)
            running.loop.call_soon_threadsafe(running.stop.set)
        thread.join(STOP_TIMEOUT_S)

    def _running(self) -> _Observing:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._ready = concurrent.futures.Future()
                self._thread = threading.Thread(
                    target=self._run, args=(self._ready,), name="raymc-observer", daemon=True
                )
                self._thread.start()
            ready = self._ready
        return _result(ready)

    def _run(self, ready: concurrent.futures.Future[_Observing]) -> None:
        try:
            asyncio.run(self._main(ready))
        except BaseException as failure:  # raised by the callers that wait
            log.exception("the observer of the clusters failed")
            with self._lock:
                if self._ready is ready:
                    self._thread = None  # before callers hear of it: their next question starts another
            waiting = ready.result().first_look if ready.done() else ready
            if not waiting.done():
                waiting.set_exception(failure)

    async def _main(self, ready: concurrent.futures.Future[_Observing]) -> None:
        settings = self._config.settings
        connections = {
            spec.name: open_connection(spec, self._environ, request_timeout_s=settings.request_timeout_s)
            for spec in self._config.clusters
        }
        watch = ClusterWatch(connections, clock=self._clock, settings=settings, jitter=jitter)
        running = _Observing(asyncio.get_running_loop(), connections, watch)
        ready.set_result(running)
        following = asyncio.create_task(self._follow(running))
        try:
            await asyncio.wait(
                {following, asyncio.create_task(running.stop.wait())}, return_when=asyncio.FIRST_COMPLETED
            )
            if following.done():
                following.result()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await asyncio.gather(*(each.close() for each in connections.values()))

    async def _follow(self, running: _Observing) -> None:
        await running.watch.first_look()
        running.first_look.set_result(None)
        await running.watch.run()


def _result(future: concurrent.futures.Future[T]) -> T:
    """Return the result of a future of the thread, or raise `SchedulerError` if it failed."""
    if (failure := future.exception()) is not None:
        raise SchedulerError(f"the clusters cannot be observed: {failure!r}") from failure
    return future.result()


class _Observing:
    """The state of a running thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connections: HttpConnections, watch: ClusterWatch
    ) -> None:
        self.loop = loop
        self.connections = connections
        self.watch = watch
        self.stop = asyncio.Event()
        #: Done when every cluster has a snapshot or has timed out.
        self.first_look: concurrent.futures.Future[None] = concurrent.futures.Future()


# The environment of tasks and actors per cluster: the cluster's own, overridden by the program's.


def program_env(composed: Mapping[str, Any], cluster_env: Mapping[str, Any]) -> dict[str, Any]:
    """Return the program's part of a composed environment: all that its cluster does not set."""
    original = remove_overlay(without_own_package(composed))
    env = {**original, "env_vars": _without(original.get("env_vars") or {}, RESERVED)}
    full = normalise(
        _without(env, {"_ray_release", "_ray_commit", "_inject_current_ray"}), where="this program"
    )
    cluster = normalise(cluster_env, where="its cluster")
    own = {option: value for option, value in full.items() if value != cluster.get(option)}
    if "env_vars" in own:
        theirs = cluster.get("env_vars", {})
        own["env_vars"] = {n: value for n, value in own["env_vars"].items() if value != theirs.get(n)}
    if isinstance(own.get("pip"), list) and isinstance(cluster.get("pip"), list):
        own["pip"] = [package for package in own["pip"] if package not in cluster["pip"]]
    return {option: value for option, value in own.items() if value}


class Environments:
    """Composes environments and uploads their packages to the clusters."""

    def __init__(
        self,
        config: Config,
        packages: Path,
        environ: Mapping[str, str],
        read_at_home: Callable[[str], bytes | None],
    ) -> None:
        self._folder = config.path.resolve().parent
        self._packages = packages
        self._identity = {n: environ[n] for n in (SUBMISSION_ID_VAR, ATTEMPT_VAR) if n in environ}
        #: The package that travels with this job, and so with its tasks and actors.
        self._own_package = environ.get(PACKAGE_VAR)
        self._read_at_home = read_at_home

    def compose(self, spec: ClusterSpec, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the runtime_env of a Ray Client session; raise `InvalidRequest` if there is none."""
        cluster_env = spec.runtime_env
        if any("://" not in str(at) for at in _locations(cluster_env)):
            cluster_env = localise(cluster_env, PackageStore(self._packages), cwd=self._folder)
        identity = {CLUSTER_VAR: spec.name, OLDER_CLUSTER_VAR: spec.name, **self._identity}
        composed = compose(cluster_env, own, identity=identity, overlay=True)
        if has_overlay(composed):
            composed = with_overlay_code(composed, PackageStore(self._packages))
        if self._own_package is not None and spec.ship_package and takes_own_package(composed):
            composed = with_own_package(composed, self._own_package)
        return for_ray_client(composed)

    async def upload_packages(self, runtime_env: Mapping[str, Any], cluster: ClusterPackages) -> None:
        """Upload the packages of an environment that a cluster lacks, from the local store or from home."""
        for name in package_names(runtime_env):
            if not await cluster.has_package(name):
                await self._upload(name, cluster)

    async def _upload(self, name: str, cluster: ClusterPackages) -> None:
        local_copy = PackageStore(self._packages).path(name) if self._packages.is_dir() else None
        if local_copy is not None:
            await cluster.put_package(name, local_copy)
            return
        content = self._read_at_home(name)
        if content is None:
            raise PackageProblem(
                f"the package gcs://{name} is neither kept here nor on the home cluster any more; "
                "submit again from the machine that has the directory"
            )
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "package"
            copy.write_bytes(content)
            await cluster.put_package(name, copy)


def _locations(runtime_env: Mapping[str, Any]) -> list[Any]:
    locations = [runtime_env.get("working_dir"), *(runtime_env.get("py_modules") or ())]
    return [location for location in locations if location]


def _without(mapping: Mapping[str, Any], names: frozenset[str] | set[str]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name not in names}


HOME_HAS_ROOM = "home has room"
STOPPED = "this scheduler was stopped; call initialize_scheduler_environment again"
#: A cluster to which no bridge could be opened is not used for this long.
AVOID_S = 30.0
#: A decision to wait at home is reused for this long: a burst of equal tasks is decided once.
WAIT_AT_HOME_S = 0.05
#: Refs of tasks are dropped after this time at the latest.
HOLD_S = 10.0

Snapshots = Mapping[str, ClusterSnapshot]
DrainStates = Mapping[str, DrainMark]
Drains = Callable[[], DrainStates]


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected cluster for one task or actor."""

    decision: Decision
    #: The bridge to the cluster; None for the home cluster.
    bridge: OpenBridge | None
    claim: UnobservedClaim


class ClusterSelector:
    """Selects clusters for the tasks and actors of this driver. Thread-safe.

    The lock is held while a decision is made and its claim is recorded, never while a session or a bridge is
    opened: work that fits at home does not wait for a bridge.
    """

    def __init__(
        self,
        config: Config,
        *,
        directory: Path,
        environ: Mapping[str, str],
        clock: Clock,
        drains: Drains,
        on_joined: Callable[[], None],
    ) -> None:
        self._unobserved = UnobservedClaims(finished)
        self._lock = threading.Lock()
        self._joining = threading.Lock()
        self._config = config
        self._specs = {spec.name: spec for spec in config.clusters}
        self._environ = environ
        self._clock = clock
        self._drains = drains
        self._on_joined = on_joined
        self._observer = ClusterObserver(config, environ, clock)
        self._environments = Environments(config, directory / "packages", environ, self._read_package)
        self._bridges = Bridges(self._environment_on, self._session_name, environ)
        self._home: Home | None = None
        self._capacity: HomeCapacity | None = None
        self._home_decision = Decision(cluster="", sentence=HOME_HAS_ROOM)
        self._last_wait: tuple[object, float, Decision] | None = None
        #: Clusters that are not used now: the reason, and until when it holds.
        self._unusable: dict[str, tuple[str, float]] = {}
        self._closed = False

    @property
    def home(self) -> Home:
        """Return the home cluster; it must be joined already."""
        assert self._home is not None
        return self._home

    @property
    def joined(self) -> bool:
        """Tell whether the home cluster is joined."""
        return self._home is not None

    @property
    def home_is_lost(self) -> bool:
        """Tell whether the home cluster is lost, or was left."""
        home = self._home  # another thread may leave it
        return home is None or home.is_lost

    def raising_home_lost(self) -> AbstractContextManager[None]:
        """Return a context that raises `HomeLost` if the home cluster is lost."""
        return nullcontext() if self._home is None else self._home.raising_home_lost()

    @contextmanager
    def select(
        self,
        work_id: str,
        claim: Resources,
        *,
        tags: Sequence[str],
        preferred: str | None,
        waits_for_room: bool = True,
        avoid: Collection[str] = (),
    ) -> Iterator[Selection]:
        """Select a cluster; the claim on it is released if the body of the context fails.

        Without `waits_for_room`, raise `NoRoomNow` where the work would wait inside Ray.
        """
        if preferred is not None and preferred != (self._home.name if self._home else None):
            self._config.cluster(preferred)  # raises if there is no such cluster
        work = QueuedJob(
            submission_id=work_id,
            seq=0,
            user="",
            priority=0,
            waiting_since=0.0,
            claim=claim,
            tags=tuple(tags),
            preferred_cluster=preferred,
        )
        selection = self._select(work, waits_for_room=waits_for_room, avoid=avoid)
        with ExitStack() as undo:
            undo.callback(self._release_claim, selection.decision.cluster, selection.claim)
            yield selection
            selection.claim.sent_at = self._clock.now()
            undo.pop_all()

    def query_cluster(
        self, name: str, question: Callable[[ClusterState], Coroutine[Any, Any, T]]
    ) -> T | None:
        """Query a cluster over HTTP; return None if it is not configured."""
        if name not in self._specs:
            return None
        return self._observer.call(lambda connections: question(connections[name].state))

    def rooms(self) -> tuple[Room, ...]:
        """Return what is free on each configured cluster, as it was last seen."""
        snapshots, drains = self._observe()
        with self._lock:
            return open_rooms(self._views(snapshots, drains))

    def capacity(self, claim: Resources) -> int:
        """Return how often a claim fits on all clusters that can be used, while nothing else is there."""
        snapshots, drains = self._observe()
        views = self._views(snapshots, drains)
        usable = [
            view.snapshot for view in views if view.snapshot.health is Health.HEALTHY and not view.drained
        ]
        totals = [snapshot.total or {} for snapshot in usable]
        return sum(
            int(min(total.get(name, 0.0) / amount for name, amount in claim.items())) for total in totals
        )

    def drop_old_refs(self) -> None:
        """Drop the refs of finished tasks, and those that are older than `HOLD_S`."""
        home, capacity = self._home, self._capacity
        with self._lock:
            for cluster in self._unobserved.clusters:
                self._unobserved.drop_sent(cluster, before=self._clock.now() - HOLD_S)
            if home is not None and capacity is not None and not home.is_lost:
                with home.ignoring_loss():
                    capacity.find_finished()

    def close(self) -> None:
        """Close all bridges and disconnect from home. Lost connections are ignored."""
        with self._joining:
            self._closed = True
            home, self._home = self._home, None
        if home is not None:
            if not home.is_lost:
                with home.ignoring_loss():
                    self._bridges.close()
            home.leave()
        self._observer.close()

    def _select(self, work: QueuedJob, *, waits_for_room: bool, avoid: Collection[str]) -> Selection:
        while True:
            home, capacity = self._ensure_joined(work)
            with self._lock:
                at_home = work.preferred_cluster in {None, home.name} and home.name not in avoid
                if at_home and capacity.fits(work.claim):
                    return self._with_claim(work, self._home_decision)
                decision = self._repeated_wait(work) if waits_for_room and not avoid else None
                if decision is not None:
                    return self._with_claim(work, decision)
                # Before work leaves home, finished tasks are found: an idle home may look full until then.
                capacity.find_finished()
                if at_home and capacity.fits_now(work.claim):
                    return self._with_claim(work, self._home_decision)
            snapshots, drains = self._observe(excluding=home.name)
            with self._lock:
                decision = self._decide(work, home, capacity, snapshots, drains, avoid)
                if decision.waits and not waits_for_room:
                    raise no_room(work, decision)
                selection = self._with_claim(work, decision)
            cluster = selection.decision.cluster
            if cluster == home.name:
                return selection
            try:
                return replace(selection, bridge=self._open_bridge(cluster, home))
            except (ClusterError, InvalidRequest) as problem:
                self._release_claim(cluster, selection.claim)
                self._avoid(cluster, str(problem))

    def _with_claim(self, work: QueuedJob, decision: Decision) -> Selection:
        """Record the claim of a decision, so that the next decision counts it."""
        claim = UnobservedClaim(work.claim)
        self._unobserved.add(decision.cluster, claim)
        return Selection(decision, None, claim)

    def _release_claim(self, cluster: str, claim: UnobservedClaim) -> None:
        with self._lock:
            self._unobserved.remove(cluster, claim)

    def _ensure_joined(self, work: QueuedJob) -> tuple[Home, HomeCapacity]:
        with self._joining:
            if self._closed:
                raise SchedulerError(STOPPED)
            if self._home is None or self._capacity is None:
                self._home = self._join(work)
                self._capacity = HomeCapacity(self._home, self._unobserved, self._clock)
                self._home_decision = Decision(cluster=self._home.name, sentence=HOME_HAS_ROOM)
                self._on_joined()
            return self._home, self._capacity

    def _join(self, work: QueuedJob) -> Home:
        here = self._environ.get(CLUSTER_VAR)
        ours = not homes.is_connected()
        if ours and here is None:
            return self._connect_to_best(work)
        if ours:
            homes.join_natively()
        name = here or homes.configured_name(self._observer.snapshots())
        cluster_env = self._specs[here].runtime_env if here in self._specs else {}
        return Home(
            name=name,
            connected_by_us=ours,
            over_client=homes.over_client(),
            program_env=program_env(homes.current_runtime_env(), cluster_env),
        )

    def _connect_to_best(self, work: QueuedJob) -> Home:
        while True:
            snapshots, drains = self._observe()
            with self._lock:
                views = self._views(snapshots, drains)
                decision = place(work, views, home=None, ours=_versions(), unfit=self._unfit())
            spec = self._specs[decision.cluster]
            try:
                environment = self._environment_on(spec)
                token = token_of(spec, self._environ)
                homes.connect(spec, environment, token, self._session_name(spec))
            except (ClusterError, InvalidRequest) as problem:
                self._avoid(spec.name, str(problem))
            else:
                return Home(name=spec.name, connected_by_us=True, over_client=True)

    def _repeated_wait(self, work: QueuedJob) -> Decision | None:
        """Return the recent decision to wait at home for equal work, or None."""
        if self._last_wait is None:
            return None
        shape, until, decision = self._last_wait
        return decision if shape == line_key(work) and self._clock.now() < until else None

    def _decide(
        self,
        work: QueuedJob,
        home: Home,
        capacity: HomeCapacity,
        snapshots: Snapshots,
        drains: DrainStates,
        avoid: Collection[str],
    ) -> Decision:
        spec = self._specs.get(home.name) or _unnamed(home.name)
        at_home = ClusterView(
            spec=spec, snapshot=capacity.snapshot(), unseen=self._unobserved.total(home.name)
        )
        views = (at_home, *self._views(snapshots, drains, excluding=home.name))
        if avoid:
            return self._decide_without(avoid, work, home, views)
        decision = place(work, views, home=home.name, ours=_versions(), unfit=self._unfit())
        if decision.cluster == home.name:
            self._last_wait = (line_key(work), self._clock.now() + WAIT_AT_HOME_S, decision)
        return decision

    def _decide_without(
        self, avoid: Collection[str], work: QueuedJob, home: Home, views: Sequence[ClusterView]
    ) -> Decision:
        others = [view for view in views if view.spec.name not in avoid]
        its_home = None if home.name in avoid else home.name
        try:
            return place(work, others, home=its_home, ours=_versions(), unfit=self._unfit())
        except (NeverFits, NoClusterAvailable) as problem:  # which an avoided one may hold, later
            left_out = ", ".join(sorted(avoid))
            raise NoRoomNow(f"{problem}\nleft out for now: {left_out}") from problem

    def _observe(self, excluding: str | None = None) -> tuple[Snapshots, DrainStates]:
        """Return snapshots and drain states of the other clusters; the first call waits for the snapshots."""
        if all(spec.name == excluding for spec in self._config.clusters):
            return {}, {}
        return self._observer.snapshots(), self._drains()

    def _views(
        self, snapshots: Snapshots, drains: DrainStates, excluding: str | None = None
    ) -> tuple[ClusterView, ...]:
        others = [spec for spec in self._config.clusters if spec.name != excluding]
        return tuple(self._view(spec, snapshots[spec.name], drains.get(spec.name)) for spec in others)

    def _view(self, spec: ClusterSpec, snapshot: ClusterSnapshot, drain: DrainMark | None) -> ClusterView:
        if snapshot.observed_at is not None:
            self._unobserved.drop_sent(spec.name, before=snapshot.observed_at - LAG_S)
        unseen = self._unobserved.total(spec.name)
        return ClusterView(spec=spec, snapshot=snapshot, unseen=unseen, **drain_fields(spec, drain))

    def _open_bridge(self, cluster: str, home: Home) -> OpenBridge:
        job = self._environ.get(SUBMISSION_ID_VAR)
        driver = f"job {job}" if job else f"a program on {socket.gethostname()} (pid {os.getpid()})"
        purpose = f"{driver}, home cluster {home.name}"
        return self._bridges.to(self._specs[cluster], namespace=home.namespace, purpose=purpose)

    def _environment_on(self, spec: ClusterSpec) -> Mapping[str, Any]:
        """Return the environment for a cluster, after its packages were uploaded there."""
        own = self._home.program_env if self._home is not None else {}
        environment = self._environments.compose(spec, own)
        self._observer.call(
            lambda connections: self._environments.upload_packages(
                environment, connections[spec.name].packages
            )
        )
        return environment

    def _session_name(self, spec: ClusterSpec) -> str | None:
        """Return the name of a cluster's Ray session, so that a session on a wrong cluster is noticed."""
        name = self._observer.call(lambda connections: connections[spec.name].probe.version()).session_name
        if name is None:
            log.info(
                "the dashboard of cluster %r reports no session name, so the session is not checked",
                spec.name,
            )
        return name

    def _read_package(self, name: str) -> bytes | None:
        return None if self._home is None else self._home.read_package(name)

    def _avoid(self, cluster: str, reason: str) -> None:
        log.warning("cluster %r gets no tasks and actors for %.0f s: %s", cluster, AVOID_S, reason)
        with self._lock:
            self._unusable[cluster] = (reason, self._clock.now() + AVOID_S)

    def _unfit(self) -> dict[str, str]:
        now = self._clock.now()
        return {name: reason for name, (reason, until) in self._unusable.items() if now < until}


def _versions() -> Versions:
    return Versions(ray=lazy_import.ray().__version__, python=platform.python_version())


def _unnamed(name: str) -> ClusterSpec:
    """Return a placeholder spec for a home cluster that is not configured."""
    return ClusterSpec(name=name, head_address="", dashboard="")
