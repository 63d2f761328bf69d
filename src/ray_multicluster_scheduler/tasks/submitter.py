"""Submits tasks and actors of this program: selects a cluster for each and starts it there."""

from __future__ import annotations

import atexit
import itertools
import logging
import queue
import threading
import time
import uuid
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.config.store_place import store_place
from ray_multicluster_scheduler.core.placement.capacity import Room
from ray_multicluster_scheduler.errors import ClusterError, InvalidRequest
from ray_multicluster_scheduler.model.resources import Resources, show
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.ray_api.http_connection import Holder
from ray_multicluster_scheduler.tasks import lazy_import
from ray_multicluster_scheduler.tasks.bridges import OpenBridge
from ray_multicluster_scheduler.tasks.callables import (
    CallableCache,
    UserCallable,
    is_ordered,
    methods_of,
    options_and_claim,
)
from ray_multicluster_scheduler.tasks.cluster_selector import ClusterSelector, Drains, Selection
from ray_multicluster_scheduler.tasks.operations import ActorRecord, Registry, TaskOperations, TaskRecord
from ray_multicluster_scheduler.tasks.placement import Decision

# A background thread for work that must not run in a finalizer or delay a submit.


log = logging.getLogger(__name__)
WORK_EVERY_S = 1.0


class BackgroundThread:
    """Runs callbacks in order, and periodic callbacks about once a second. A daemon: it delays no exit.

    A callback that fails is logged and the others still run: refs and actors are released here.
    """

    def __init__(
        self,
        periodic: Sequence[Callable[[], object]],
        *,
        name: str = "raymc-background",
        every_s: float = WORK_EVERY_S,
    ) -> None:
        self._periodic = periodic
        self._name = name
        self._every_s = every_s
        #: Unlike `queue.Queue`, safe to use while the garbage collector runs.
        self._callbacks: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def add(self, callback: Callable[[], object]) -> None:
        """Run a callback soon."""
        self._callbacks.put(callback)

    def stop(self, within_s: float = WORK_EVERY_S) -> None:
        """Stop after the callbacks that were added so far; do not wait for longer."""
        if self._thread is not None:
            self._callbacks.put(None)
            if self._thread is not threading.current_thread():
                self._thread.join(within_s)
            self._thread = None

    def _run(self) -> None:
        next_round = time.monotonic() + self._every_s
        while True:
            if time.monotonic() >= next_round:
                for each in self._periodic:
                    _do(each)
                next_round = time.monotonic() + self._every_s
            try:
                callback = self._callbacks.get(timeout=max(next_round - time.monotonic(), 0))
            except queue.Empty:
                continue
            if callback is None:
                return
            _do(callback)


def _do(callback: Callable[[], object]) -> None:
    try:
        callback()
    except BaseException as problem:  # logged: it must not prevent the later ones
        lines = str(problem).strip().splitlines() or [""]
        kind = type(problem).__name__
        log.warning("a background callback of tasks and actors failed: %s: %s", kind, lines[0])
        log.debug("where it failed", exc_info=True)


# Warnings about tasks and actors that wait for free resources, which otherwise looks like a hang.


#: No warning before work has waited for this long.
QUIET_S = 5.0
#: Least time between two warnings: a program that submits more than fits keeps doing so.
EVERY_S = 60.0
#: Candidates kept: of a thousand that wait, the first hundred are enough.
MAX_KEPT = 100
#: Most holders named in a warning.
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """A task or an actor that was placed on a cluster without room for it."""

    record: TaskRecord | ActorRecord
    claim: Resources
    #: When it was placed (wall clock).
    at: float
    #: The result of a task on another cluster, to notice its end.
    ref: Any = None

    @property
    def work_id(self) -> str:
        """Return the id that `explain_task` takes."""
        return self.record.actor_id if isinstance(self.record, ActorRecord) else self.record.task_id

    @property
    def description(self) -> str:
        """Return a description for the warning."""
        if isinstance(self.record, ActorRecord):
            return f"the actor {self.record.name or self.record.class_name} ({self.work_id})"
        return f"the task {self.record.name} ({self.work_id})"


class WaitWarnings:
    """Logs a warning if work that was placed without room still waits after a few seconds."""

    def __init__(self, operations: TaskOperations, clock: Clock) -> None:
        self._operations = operations
        self._clock = clock
        self._candidates: deque[WaitingWork] = deque(maxlen=MAX_KEPT)
        self._quiet_until = float("-inf")

    def add(self, record: TaskRecord | ActorRecord, claim: Resources, ref: Any = None) -> None:
        """Add work, if it was placed without room."""
        if record.decision.waits:
            self._candidates.append(WaitingWork(record, claim, self._clock.now(), ref))

    def check(self) -> None:
        """Log a warning if one is due."""
        now = self._clock.now()
        due: list[WaitingWork] = []
        while self._candidates and self._candidates[0].at <= now - QUIET_S:
            due.append(self._candidates.popleft())
        if not due or now < self._quiet_until:
            return
        try:
            waiting = [each for each in due if self._operations.is_waiting(each.record, each.ref)]
            if waiting:
                self._quiet_until = now + EVERY_S
                holders = self._operations.holders(waiting[0].record.decision.cluster)
                log.warning("%s", warning(waiting, now, holders))
        except ClusterError as problem:
            log.debug("cannot tell what waits: %s", problem)


def warning(waiting: Sequence[WaitingWork], now: float, holders: Iterable[Holder]) -> str:
    """Return the warning: what waits, for which resources, their holders, and how to learn more."""
    first = waiting[0]
    others = f" and {len(waiting) - 1} more wait" if len(waiting) > 1 else " waits"
    names = Counter(each.name for each in holders if each.resources.keys() & first.claim.keys())
    listed = [f"{name} ({times}x)" if times > 1 else name for name, times in names.most_common(MAX_NAMED)]
    if len(names) > MAX_NAMED:
        listed.append(f"{len(names) - MAX_NAMED} others")
    held = f"held there by {', '.join(listed)}" if listed else "nothing that runs there shows as holding it"
    return (
        f"{first.description}{others} for room on cluster {first.record.decision.cluster!r}, "
        f"for {now - first.at:.0f} s so far: it needs {show(first.claim)}; {held}. "
        f"explain_task({first.work_id!r}) says why it is there"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """A request to start one task or actor."""

    code: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    resource_requirements: Mapping[str, float] | None = None
    tags: Sequence[str] = ()
    name: str = ""
    preferred_cluster: str | None = None
    #: Ray's options besides the resources; None if not given.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Where no cluster has room now it is started and waits inside Ray; else `NoRoomNow` is raised.
    waits_for_room: bool = True
    #: Clusters that it must not go to.
    avoid: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorAbout:
    """A class of actors: its methods with the number of their results, and what each actor claims."""

    class_name: str
    methods: Mapping[str, int | str]
    claim: Resources
    max_concurrency: int


class TaskSubmitter:
    """Submits tasks and actors. Connects to the home cluster with the first one."""

    def __init__(
        self, config: Config, *, directory: Path, environ: Mapping[str, str], clock: Clock, drains: Drains
    ) -> None:
        self._callables = CallableCache()
        self._registry = Registry()
        self._selector = ClusterSelector(
            config,
            directory=directory,
            environ=environ,
            clock=clock,
            drains=drains,
            on_joined=self._on_joined,
        )
        #: Status, results, cancel, kill and so on, by id.
        self.operations = TaskOperations(self._registry, self._selector, clock)
        self._wait_warnings = WaitWarnings(self.operations, clock)
        self._background = BackgroundThread(
            (self._selector.drop_old_refs, self._wait_warnings.check, self.operations.forget_ended)
        )
        self._prefix = uuid.uuid4().hex[:10]
        self._numbers = itertools.count(1)

    @classmethod
    def without_store(cls, config: Config, environ: Mapping[str, str]) -> TaskSubmitter:
        """Return one for a program that opens no store, and so does not know which clusters are drained."""
        directory = store_place(config, environ).directory
        return cls(config, directory=directory, environ=environ, clock=SystemClock(), drains=dict)

    def submit_task(self, request: TaskRequest) -> tuple[str, Any]:
        """Start a task and return its id and its ref, or a list of refs if it has several results."""
        code, options, claim = self._prepare(request, default_cpus=1)
        task_id = f"task_{self._prefix}_{next(self._numbers)}"
        with self._selected(task_id, claim, request) as selection:
            decision, bridge = selection.decision, selection.bridge
            if bridge is None:
                refs = code.prepared(options).remote(*request.args, **request.kwargs)
            else:
                refs = _run_on_other_cluster(bridge, task_id, code, options, request, decision)
            first = selection.claim.ref = refs[0] if isinstance(refs, list) else refs
            record = TaskRecord(
                task_id=task_id,
                name=request.name or code.name,
                decision=decision,
                bridge=bridge,
                returns=0 if refs is None else len(refs) if isinstance(refs, list) else None,
            )
            self._registry.add_task(record)
            self._wait_warnings.add(record, claim, first if bridge is not None else None)
        self._note_ray_id(record, first)
        return task_id, refs

    def submit_actor(self, request: TaskRequest) -> tuple[str, Any]:
        """Start an actor and return its id and its handle."""
        code, options, claim = self._prepare_actor(request)
        actor_id = f"actor_{self._prefix}_{next(self._numbers)}"
        with self._selected(actor_id, claim, request) as selection:
            bridge, created, ray_id = selection.bridge, None, None
            if bridge is None:
                handle = code.prepared(options).remote(*request.args, **request.kwargs)
                ray_id = handle._actor_id.hex()
            else:
                created, handle = self._create_on_other_cluster(bridge, actor_id, code, options, request)
            record = ActorRecord(
                actor_id=actor_id,
                name=request.name,
                class_name=code.name,
                decision=selection.decision,
                handle=weakref.ref(handle),
                bridge=bridge,
                ray_id=ray_id,
                created=created,
            )
            self._registry.add_actor(record)
            self._wait_warnings.add(record, claim)
        return actor_id, handle

    def capacity(self, claim: Resources) -> int:
        """Return how often a claim fits on all clusters that can be used, while nothing else is there."""
        return self._selector.capacity(claim)

    def close(self) -> None:
        """Close all bridges with everything started through them, and disconnect if we connected."""
        atexit.unregister(self.close)
        self._background.stop()
        self._selector.close()

    def _on_joined(self) -> None:
        """Start the background thread and register the exit handler, once home is joined."""
        atexit.register(self.close)  # registered after Ray's own handler, so it runs before it
        self._background.start()

    @contextmanager
    def _selected(
        self, work_id: str, claim: Mapping[str, float], request: TaskRequest
    ) -> Iterator[Selection]:
        selecting = self._selector.select(
            work_id,
            claim,
            tags=request.tags,
            preferred=request.preferred_cluster,
            waits_for_room=request.waits_for_room,
            avoid=request.avoid,
        )
        with self._selector.raising_home_lost(), selecting as selection:
            yield selection

    def _prepare(
        self, request: TaskRequest, *, default_cpus: float
    ) -> tuple[UserCallable, dict[str, Any], dict[str, float]]:
        code = self._callables.get(request.code)
        changes = {**request.options, "name": request.name or None}
        options, claim = options_and_claim(
            code.defaults, request.resource_requirements, changes, default_cpus=default_cpus
        )
        return code, options, claim

    def _prepare_actor(self, request: TaskRequest) -> tuple[UserCallable, dict[str, Any], dict[str, float]]:
        prepared = self._prepare(request, default_cpus=0)
        if not isinstance(plain := prepared[0].plain, type):
            raise InvalidRequest(f"actor_class must be a class, not {plain!r}; functions go to submit_task")
        return prepared

    def about_actor(self, request: TaskRequest) -> ActorAbout:
        """Return what a pool has to know of the actors that it will submit."""
        code, options, claim = self._prepare_actor(request)
        return ActorAbout(
            class_name=code.name,
            methods=methods_of(code.plain),
            claim=claim,
            max_concurrency=options.get("max_concurrency") or 1,
        )

    def rooms(self) -> tuple[Room, ...]:
        """Return what is free on each configured cluster, as it was last seen."""
        return self._selector.rooms()

    def _create_on_other_cluster(
        self,
        bridge: OpenBridge,
        actor_id: str,
        code: UserCallable,
        options: Mapping[str, Any],
        request: TaskRequest,
    ) -> tuple[Any, Any]:
        digest = bridge.send_code(code)
        created = bridge.actor.create.remote(
            actor_id, digest, options, tuple(request.args), dict(request.kwargs)
        )
        if request.name:  # raises now if the name is taken, as Ray does
            lazy_import.ray().get(created)
        about = {
            "home": self._selector.home.name,
            "cluster": bridge.cluster,
            "class": code.name,
            "name": request.name,
            "ordered": is_ordered(code.plain, options),
        }
        wire = lazy_import.wire("handle")
        state = wire.HandleState(bridge.actor, bridge.bridge_id, actor_id, methods_of(code.plain), about)
        handle = wire.CrossClusterActor(state)
        if options.get("lifetime") != "detached":
            self._release_when_gone(handle, bridge, actor_id)
        return created, handle

    def _release_when_gone(self, handle: Any, bridge: OpenBridge, actor_id: str) -> None:
        """Release an actor when its handle is collected, as Ray does, unless the handle was copied."""
        numbers = handle._raymc.numbers

        def release() -> None:
            bridge.actor.release.remote(actor_id, next(numbers))

        finalizer = weakref.finalize(handle, self._background.add, release)
        finalizer.atexit = False
        handle._raymc.on_shared = finalizer.detach

    def _note_ray_id(self, record: TaskRecord, ref: Any) -> None:
        """Record Ray's id of a task; over Ray Client in the background, as it takes a round trip."""

        def note() -> None:
            record.ray_id = ref.task_id().hex()

        if ref is None:
            return
        if self._selector.home.over_client:
            self._background.add(note)
        else:
            note()


def _run_on_other_cluster(
    bridge: OpenBridge,
    task_id: str,
    code: UserCallable,
    options: Mapping[str, Any],
    request: TaskRequest,
    decision: Decision,
) -> Any:
    wire = lazy_import.wire("bridge")
    repeatable = options.get("max_retries") != 0  # Ray's default is to retry tasks
    fallback = wire.NEVER if not decision.home_holds else wire.ALWAYS if repeatable else wire.IF_UNSENT
    run = bridge.actor.run.options(num_returns=options.get("num_returns") or 1)
    return run.remote(
        task_id, bridge.send_code(code), options, tuple(request.args), dict(request.kwargs), fallback
    )
