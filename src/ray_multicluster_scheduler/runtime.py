"""The composition root: the one place where the parts are put together.

A `Scheduler` is a client of its store. `embedded.EmbeddedScheduler` runs the engine as well.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ray_multicluster_scheduler.asyncio_tools import cancel_all, together
from ray_multicluster_scheduler.background import BackgroundScheduler
from ray_multicluster_scheduler.clock import CachedFor, StoreClock
from ray_multicluster_scheduler.config import Config, Settings, find_config, load_config
from ray_multicluster_scheduler.config.find import SANDBOX_DOWN, sandbox_is_down, this_user
from ray_multicluster_scheduler.config.load import ConfigChange, config_change
from ray_multicluster_scheduler.config.store_place import StorePlace, kept_apart, remember, store_place
from ray_multicluster_scheduler.environment.compose import with_address
from ray_multicluster_scheduler.errors import ConfigInvalid, ConfigNotFound, StoreError
from ray_multicluster_scheduler.executors.registry import Executors, Registry
from ray_multicluster_scheduler.model.cluster import TRIAL_S, ClusterSpec
from ray_multicluster_scheduler.packages.runtime_env import with_packed_environments
from ray_multicluster_scheduler.packages.shared_packages import shared_packages
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.uploads import Uploads
from ray_multicluster_scheduler.ports import ClusterConnection, Connections
from ray_multicluster_scheduler.service.auth import Authenticator, JobTokens, Tokens
from ray_multicluster_scheduler.service.caller import Caller, audit_entry
from ray_multicluster_scheduler.service.events import EventHub, Listener, MoveFollower
from ray_multicluster_scheduler.service.logs import Tails
from ray_multicluster_scheduler.service.packages import needed_packages
from ray_multicluster_scheduler.service.service import JobService, LocalService, Parts, ServiceParts, later
from ray_multicluster_scheduler.service.views import ClusterReport, ProcessList
from ray_multicluster_scheduler.store import Store, open_at
from ray_multicluster_scheduler.store.access import Access

if TYPE_CHECKING:
    from ray_multicluster_scheduler.inspection.clusters import (
        ClusterLook,
        ClusterRecords,
        FreshLook,
        ProcessLook,
        Snapshots,
    )
    from ray_multicluster_scheduler.service.explain import Explainer, WaitNumbers
    from ray_multicluster_scheduler.tasks.submitter import TaskSubmitter

T = TypeVar("T")
S = TypeVar("S", bound="Scheduler")

#: How long it is remembered which other queues of this machine use the same clusters.
OTHERS_GOOD_FOR_S = 5.0


#: How long a program that ends waits for connections to close.
CLOSE_TIMEOUT_S = 5.0

Connect = Callable[[ClusterSpec, Settings], ClusterConnection]


class ClusterLoop:
    """Runs coroutines that talk to clusters. Thread and connections come with the first of them."""

    def __init__(self, config: Config, connect: Connect) -> None:
        self._config = config
        self._connect = connect
        self._connections = LiveConnections()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def begin(self, function: Callable[[Connections], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine with the connections to all clusters; also works inside a running loop."""
        loop = self._started()  # first: the function may take a connection at once
        return asyncio.run_coroutine_threadsafe(function(self._connections), loop)

    def change(self, config: Config) -> None:
        """Use another configuration from now on. Connections to clusters that did not change are kept."""
        with self._lock:
            loop, former, self._config = self._loop, self._config, config
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._change(former, config), loop).result()

    def close(self) -> None:
        """End what runs, and close the connections."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_TIMEOUT_S)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()
                self._connections.now = self._connected(self._config)
                self._thread = threading.Thread(
                    target=self._run, args=(loop,), name="raymc-clusters", daemon=True
                )
                self._thread.start()
            return self._loop

    def _connected(self, config: Config) -> dict[str, ClusterConnection]:
        return {spec.name: self._connect(spec, config.settings) for spec in config.clusters}

    async def _change(self, former: Config, config: Config) -> None:
        known = self._connections.now
        same = former.clusters if former.settings == config.settings else ()
        fresh = {
            spec.name: known[spec.name] if spec in same else self._connect(spec, config.settings)
            for spec in config.clusters
        }
        self._connections.now = fresh
        kept = {id(each) for each in fresh.values()}
        await together(each.close() for each in known.values() if id(each) not in kept)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(cancel_all(asyncio.all_tasks(loop)))
            for each in self._connections.now.values():
                loop.run_until_complete(each.close())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


class LiveConnections(Mapping[str, ClusterConnection]):
    """The clusters of now, for what outlives a change of the configuration."""

    def __init__(self) -> None:
        self.now: Connections = {}

    def __getitem__(self, name: str) -> ClusterConnection:
        return self.now[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.now)

    def __len__(self) -> int:
        return len(self.now)


class Scheduler:
    """One configuration in this process: a client of its store, which submits, reads and waits.

    Nothing is opened before it is needed, and nothing is scheduled here: a process of its own does that.
    """

    def __init__(self, config: Config, *, directory: Path, environ: Mapping[str, str]) -> None:
        self.config = config
        self.directory = directory
        self._environ = environ
        self.clock = StoreClock()
        #: Where jobs reach the server that this scheduler is behind; set before anything is opened.
        self.job_address: str | None = None
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._reloading = threading.Lock()
        self._loop = ClusterLoop(config, self._connect)
        self._background = BackgroundScheduler(config, directory, environ)
        self._parts: Parts | None = None
        self._tasks: TaskSubmitter | None = None
        self._stopped = False

    @classmethod
    def open(
        cls: type[S],
        config_file_path: str | Path | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> S:
        """Find and read the configuration; starts nothing."""
        environ = os.environ if environ is None else environ
        path = find_config(config_file_path, environ=environ, cwd=cwd or Path.cwd())
        config = load_config(path)
        return cls(config, directory=store_place(config, environ).directory, environ=environ)

    def anew(self) -> Scheduler:
        """Return a scheduler with the same configuration, with nothing opened or started."""
        return Scheduler(self.config, directory=self.directory, environ=self._environ)

    @property
    def parts(self) -> Parts:
        """Open the store, once."""
        with self._usable():
            if self._parts is None:
                self._parts = self._open()
                atexit.register(self.stop)
            return self._parts

    @property
    def place(self) -> StorePlace:
        """Where its jobs are kept."""
        return store_place(self.config, self._environ, directory=self.directory)

    @property
    def where(self) -> str:
        """Where its clusters are named, for messages."""
        return str(self.config.path)

    @property
    def identity(self) -> object:
        """Equal for two that have the same configuration, and keep their jobs in the same place."""
        return self.config, self.directory

    @property
    def packages(self) -> PackageStore:
        """Where directories of this machine are packed: the place where packages are kept, too."""
        return self.parts.packages

    @property
    def store(self) -> Store:
        """The durable queue and history."""
        return self.parts.store

    @property
    def service(self) -> LocalService:
        """The service: all calls that callers can make."""
        return self.parts.service

    @property
    def tokens(self) -> Tokens:
        """The tokens of people, for a server of this store."""
        return self.parts.tokens

    @property
    def authenticator(self) -> Authenticator:
        """Authenticates the callers of a server on this store: people, and the programs of jobs."""
        return self.parts.job_tokens

    @property
    def access(self) -> Access:
        """Where tokens and the audit trail are kept."""
        return self.parts.store.access

    @property
    def tasks(self) -> TaskSubmitter:
        """Tasks and actors. Needs neither store nor engine, so that it works inside a job."""
        with self._usable():
            if self._tasks is None:
                from ray_multicluster_scheduler.tasks.submitter import TaskSubmitter  # noqa: PLC0415 - jobs need none

                atexit.register(self.stop)
                self._tasks = TaskSubmitter(
                    self.config,
                    directory=self.directory,
                    environ=self._environ,
                    clock=self.clock,
                    drains=lambda: {} if self._parts is None else self._parts.store.clusters.drained(),
                )
            return self._tasks

    @property
    def stopped(self) -> bool:
        """Tell whether `stop` was called."""
        return self._stopped

    def ensure_scheduled(self, *, at_once: bool = False) -> None:
        """Make sure that a process schedules while jobs are open: start one in the background if none does.

        May be called often: it looks once in a while, or `at_once` after jobs were submitted.
        """
        with self._usable():
            store, background = self.store, self._background
        background.ensure(store, now=self.clock.now(), at_once=at_once)

    def engine_problem(self) -> str | None:
        """Say why the engine that belongs to this process does not run; None: it does, or there is none."""
        return None

    def is_leader(self, holder: str) -> bool:  # noqa: ARG002 - of those who have an engine
        """Tell whether the holder of the lease is the engine that belongs to this process."""
        return False

    def start(self) -> None:
        """Make sure that open jobs are scheduled. Programs of the older package call it."""
        self.ensure_scheduled()

    def stop(self) -> None:
        """Close the store. The scheduler and its jobs go on; tasks and actors of this process end."""
        if not self._is_ours():
            return  # at the end of a forked child: closing the parent's connections would harm the parent
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            atexit.unregister(self.stop)
        # Without the lock: the threads that end now may ask for it once more.
        self._close()

    def _close(self) -> None:
        if self._tasks is not None:
            self._tasks.close()
        self._loop.close()
        if self._parts is not None:
            self._parts.hub.close()
            self._parts.store.close()

    def reload(self, path: Path | None = None, *, by: Caller | None = None) -> ConfigChange:
        """Read clusters.yaml again, or another file, and go on with what it says now; jobs go on.

        Raises `ConfigInvalid` or `ConfigNotFound` for a wrong file, and then nothing has changed.
        """
        with self._reloading:
            former, parts = self.config, self.parts
            fresh = self._read_again(path or former.path, by or Caller(user=this_user()))
            change = config_change(former, fresh)
            assembled = self._assemble(fresh, parts.store, parts.hub, parts.tokens)
            self._change_engine(former, fresh, assembled)
            self._loop.change(fresh)
            with self._usable():
                self.config, self._parts = fresh, assembled
            return change

    def _change_engine(self, former: Config, fresh: Config, parts: Parts) -> None:
        """Let the engine go on with another configuration, where there is one in this process."""

    def _read_again(self, path: Path, by: Caller) -> Config:
        """Read the file, and record the caller and the outcome in the audit trail."""
        entry = audit_entry(by, "reload", str(path), now=self.clock.now())
        try:
            fresh = load_config(path)
        except (ConfigInvalid, ConfigNotFound) as problem:
            self.access.record([replace(entry, outcome=f"refused: {type(problem).__name__}")])
            raise
        self.access.record([entry])
        return fresh

    @property
    def store_id(self) -> str:
        """Which queue and history this is, wherever its directory is."""
        return self.store.store_id

    def tell_store_times(self, tell: Callable[[str, float], None]) -> None:
        """Call `tell` with how long each "read", "write" and "commit" of the store lasts, from any thread."""
        self.store.tell_times(tell)

    def follow_moves(self, listener: Listener) -> MoveFollower:
        """Call `listener` with all moves of jobs from now on. Close the follower after use."""
        return MoveFollower(self.store, listener)

    def cluster_look(self) -> AbstractAsyncContextManager[ClusterLook]:
        """Look at the clusters themselves, with what the store says of them; makes no store."""
        from ray_multicluster_scheduler.inspection.clusters import open_cluster_look  # noqa: PLC0415 - slow

        return open_cluster_look(self.config, self._connect_all, self.clock, self._read_records)

    def doctor(self) -> tuple[ClusterReport, ...]:
        """Examine every cluster: what is wrong with it, and what to do about it."""
        return self._diagnose(self.config, None, None)

    def run_doctor(self, *, timeout_s: float = TRIAL_S) -> tuple[ClusterReport, ...]:
        """Examine every cluster, also with a short job that runs there; makes no store."""
        return self._diagnose(self.config, None, timeout_s)

    def _diagnose(
        self, config: Config, only: Sequence[str] | None, timeout_s: float | None
    ) -> tuple[ClusterReport, ...]:
        """Examine all clusters, or `only` these; with a time-out, a short job runs on each of them."""
        from ray_multicluster_scheduler.inspection.doctor import Trials, diagnose_all  # noqa: PLC0415 - slow

        specs = config.clusters if only is None else [config.cluster(name) for name in only]
        trials = None
        if timeout_s is not None:
            trials = Trials(packages=PackageStore(self.directory / "packages"), timeout_s=timeout_s)
        checks = asyncio.run(diagnose_all(config, specs, self._environ, self.clock, trials))
        return tuple(
            ClusterReport(name=spec.name, dashboard=spec.dashboard, checks=checks[spec.name])
            for spec in specs
        )

    def processes(self) -> ProcessList:
        """Return what runs inside the clusters, and which ones cannot be looked at; makes no store."""
        return self._process_look(self.config)()

    @property
    def user(self) -> str:
        """Whose jobs are submitted with it."""
        return this_user()

    def list_clusters(self) -> list[str]:
        """Return the names of the configured clusters; `cluster_details` tells more of each."""
        return [spec.name for spec in self.config.clusters]

    def cluster_details(self) -> list[dict[str, Any]]:
        """Return every configured cluster with what was last seen of it; unknown values are None."""
        return [cluster.model_dump(mode="json") for cluster in self.service.clusters()]

    def begin(self, function: Callable[[Connections], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine that talks to clusters."""
        with self._usable():
            return self._loop.begin(function)

    def _is_ours(self) -> bool:
        return self._process == os.getpid()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        again = "call initialize_scheduler_environment again"
        if not self._is_ours():  # before the lock: in a forked child it may be held for ever
            raise StoreError(f"this scheduler belongs to the process that was forked; {again} in this one")
        with self._lock:
            if self._stopped:
                raise StoreError(f"this scheduler was stopped; {again}")
            yield

    def _open(self) -> Parts:
        store = open_at(self.place)
        with ExitStack() as failed:
            failed.callback(store.close)
            self.clock.ahead_s = lambda: store.ahead_s
            hub = EventHub(store, self.clock, ensure_scheduled=self.ensure_scheduled)
            tokens = Tokens(store.access, self.clock)
            parts = self._assemble(self.config, store, hub, tokens)
            failed.pop_all()
        return parts

    def _assemble(self, raw: Config, store: Store, hub: EventHub, tokens: Tokens) -> Parts:
        """Build the components of one configuration. All arguments but `raw` outlive a reload."""
        remember(raw, self.place, self._environ)
        shared = raw.settings.packages or self.place.packages
        packages = PackageStore(self.directory / "packages", shared=shared_packages(shared, store))
        config = with_packed_environments(raw, packages)
        config = replace(config, clusters=with_address(config.clusters, self.job_address))
        explainer = later(lambda: self._explainer(config, raw, store, executors.registry))
        fresh_look = later(lambda: self._fresh_look(config, store))

        def look() -> Snapshots | None:  # what a leader publishes is as fresh
            return None if self._is_led() else fresh_look()

        executors = Executors(store, self.clock)
        service_parts = ServiceParts(
            config=config,
            loaded=raw,
            store=store,
            packages=packages,
            clock=self.clock,
            hub=hub,
            jobs=JobService(config, store, self.clock, hub, executors.registry, look),
            explainer=explainer,
            look=look,
            waits=later(lambda: self._wait_numbers(explainer, store, look)),
            processes=later(lambda: self._process_look(raw)),
            run_doctor=partial(self._diagnose, raw),
            uploads=Uploads(store.uploads, packages, needed=lambda: needed_packages(store)),
            reach=self.begin,
            executors=executors,
            tails=Tails(self.begin, executors, hub, store),
            tokens=tokens,
            kept_apart=CachedFor(
                lambda: kept_apart(raw, self.place, self._environ), self.clock, good_for_s=OTHERS_GOOD_FOR_S
            ),
            closed=lambda: SANDBOX_DOWN if sandbox_is_down(raw.path, self._environ) else None,
        )
        return Parts(
            config=config,
            store=store,
            packages=packages,
            hub=hub,
            service=LocalService(service_parts, Caller(user=this_user())),
            tokens=tokens,
            job_tokens=JobTokens(store, self.clock, tokens),
        )

    # What follows imports the planner, the probes of clusters or HTTP: most commands need none of it.

    def _explainer(self, config: Config, raw: Config, store: Store, executors: Registry) -> Explainer:
        from ray_multicluster_scheduler.engine.leader import plan_rules  # noqa: PLC0415 - see above
        from ray_multicluster_scheduler.service.explain import Explainer  # noqa: PLC0415

        rules = plan_rules(config.settings, executors.capabilities())
        return Explainer(config, store, self.clock, rules, loaded=raw)

    def _wait_numbers(
        self, explainer: Explainer, store: Store, look: Callable[[], Snapshots | None]
    ) -> WaitNumbers:
        from ray_multicluster_scheduler.service.explain import WaitNumbers  # noqa: PLC0415 - see above

        return WaitNumbers(
            explainer, self.clock, lambda: store.clusters.published_waits(now=self.clock.now()), look=look
        )

    def _fresh_look(self, config: Config, store: Store) -> FreshLook:
        from ray_multicluster_scheduler.inspection.clusters import FreshLook  # noqa: PLC0415 - see above

        return FreshLook(config, self.begin, self.clock, origin=store.store_id)

    def _process_look(self, config: Config) -> ProcessLook:
        from ray_multicluster_scheduler.inspection.clusters import ProcessLook  # noqa: PLC0415 - see above

        return ProcessLook(config, self._environ, self.clock, self._read_records)

    def _is_led(self) -> bool:
        return self.store.leases.current(now=self.clock.now()) is not None

    def _read_records(self) -> ClusterRecords:
        from ray_multicluster_scheduler.inspection.clusters import ClusterRecords  # noqa: PLC0415 - see above

        parts = self._parts
        return ClusterRecords.read(self.place) if parts is None else ClusterRecords.of(parts.store)

    def _connect_all(self) -> dict[str, ClusterConnection]:
        return {spec.name: self._connect(spec, self.config.settings) for spec in self.config.clusters}

    def _connect(self, spec: ClusterSpec, settings: Settings) -> ClusterConnection:
        from ray_multicluster_scheduler.ray_api.http_connection import open_connection  # noqa: PLC0415 - see above

        return open_connection(
            spec,
            self._environ,
            request_timeout_s=settings.request_timeout_s,
            upload_timeout_s=settings.upload_timeout_s,
        )
