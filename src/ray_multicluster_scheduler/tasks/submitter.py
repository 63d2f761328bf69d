"""Tasks and actors of one driver: starts each one where it belongs."""

from __future__ import annotations

import atexit
import itertools
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.tasks import lazy_import
from ray_multicluster_scheduler.tasks.background import Keeper
from ray_multicluster_scheduler.tasks.bridges import Span
from ray_multicluster_scheduler.tasks.callables import (
    Catalog,
    Code,
    is_ordered,
    methods_of,
    options_and_claim,
)
from ray_multicluster_scheduler.tasks.cluster_selector import Choice, Chooser, Drains
from ray_multicluster_scheduler.tasks.operations import Inquiries
from ray_multicluster_scheduler.tasks.placement import Decision
from ray_multicluster_scheduler.tasks.registry import ActorRecord, Records, TaskRecord
from ray_multicluster_scheduler.tasks.wait_warnings import Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One task or actor as the caller asked for it."""

    code: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    resource_requirements: Mapping[str, float] | None = None
    tags: Sequence[str] = ()
    name: str = ""
    preferred_cluster: str | None = None
    #: Ray's options beside the resources; None: not given.
    options: Mapping[str, Any] = field(default_factory=dict)


class TaskRunner:
    """All tasks and actors that this program submits. It joins a cluster when the first one comes."""

    def __init__(
        self, config: Config, *, directory: Path, environ: Mapping[str, str], clock: Clock, drains: Drains
    ) -> None:
        self._catalog = Catalog()
        self._records = Records()
        self._chooser = Chooser(
            config,
            directory=directory,
            environ=environ,
            clock=clock,
            drains=drains,
            when_joined=self._begin,
        )
        #: What can be asked about tasks and actors, and done to them.
        self.inquiries = Inquiries(self._records, self._chooser, clock)
        self._waiting = Waiting(self.inquiries, clock)
        self._keeper = Keeper((self._chooser.age, self._waiting.look, self.inquiries.forget_ended))
        self._prefix = uuid.uuid4().hex[:10]
        self._numbers = itertools.count(1)

    def submit_task(self, request: Request) -> tuple[str, Any]:
        """Start a task and return its id and the ref of its result; a list of refs for several."""
        code, options, claim = self._prepare(request, default_cpus=1)
        task_id = f"task_{self._prefix}_{next(self._numbers)}"
        with self._chosen(task_id, claim, request) as choice:
            decision, span = choice.decision, choice.span
            if span is None:
                refs = code.prepared(options).remote(*request.args, **request.kwargs)
            else:
                refs = _run_far(span, task_id, code, options, request, decision)
            first = choice.entry.ref = refs[0] if isinstance(refs, list) else refs
            record = TaskRecord(
                task_id=task_id,
                name=request.name or code.name,
                decision=decision,
                span=span,
                returns=len(refs) if isinstance(refs, list) else None,
            )
            self._records.add_task(record)
            self._waiting.add(record, claim, first if span is not None else None)
        self._note_ray_id(record, first)
        return task_id, refs

    def submit_actor(self, request: Request) -> tuple[str, Any]:
        """Start an actor and return its id and its handle."""
        code, options, claim = self._prepare(request, default_cpus=0)
        if not isinstance(code.plain, type):
            raise InvalidRequest(
                f"actor_class must be a class, not {code.plain!r}; functions go to submit_task"
            )
        actor_id = f"actor_{self._prefix}_{next(self._numbers)}"
        with self._chosen(actor_id, claim, request) as choice:
            span, created, ray_id = choice.span, None, None
            if span is None:
                handle = code.prepared(options).remote(*request.args, **request.kwargs)
                ray_id = handle._actor_id.hex()
            else:
                created, handle = self._create_far(span, actor_id, code, options, request)
            record = ActorRecord(
                actor_id=actor_id,
                name=request.name,
                class_name=code.name,
                decision=choice.decision,
                handle=weakref.ref(handle),
                span=span,
                ray_id=ray_id,
                created=created,
            )
            self._records.add_actor(record)
            self._waiting.add(record, claim)
        return actor_id, handle

    def close(self) -> None:
        """End every bridge with all that was started through it, and leave a cluster that we have joined."""
        atexit.unregister(self.close)
        self._keeper.stop()
        self._chooser.close()

    def _begin(self) -> None:
        """Do what is needed once there is a home."""
        atexit.register(self.close)  # after Ray's own exit handler, so it runs before that one
        self._keeper.start()

    @contextmanager
    def _chosen(self, work_id: str, claim: Mapping[str, float], request: Request) -> Iterator[Choice]:
        choosing = self._chooser.chosen(
            work_id, claim, tags=request.tags, preferred=request.preferred_cluster
        )
        with self._chooser.home_needed(), choosing as choice:
            yield choice

    def _prepare(
        self, request: Request, *, default_cpus: float
    ) -> tuple[Code, dict[str, Any], dict[str, float]]:
        code = self._catalog.code(request.code)
        changes = {**request.options, "name": request.name or None}
        options, claim = options_and_claim(
            code.defaults, request.resource_requirements, changes, default_cpus=default_cpus
        )
        return code, options, claim

    def _create_far(
        self, span: Span, actor_id: str, code: Code, options: Mapping[str, Any], request: Request
    ) -> tuple[Any, Any]:
        digest = span.teach(code)
        created = span.actor.create.remote(
            actor_id, digest, options, tuple(request.args), dict(request.kwargs)
        )
        if request.name:  # Ray says at once when a name is taken
            lazy_import.ray().get(created)
        about = {
            "home": self._chooser.home.name,
            "cluster": span.cluster,
            "class": code.name,
            "name": request.name,
            "ordered": is_ordered(code.plain, options),
        }
        wire = lazy_import.wire("handle")
        far = wire.Far(span.actor, span.bridge_id, actor_id, methods_of(code.plain), about)
        handle = wire.FarActor(far)
        if options.get("lifetime") != "detached":
            self._release_when_gone(handle, span, actor_id)
        return created, handle

    def _release_when_gone(self, handle: Any, span: Span, actor_id: str) -> None:
        """Give an actor up when its handle is gone, as Ray does; one that was copied stays."""
        numbers = handle._raymc.numbers

        def release() -> None:
            span.actor.release.remote(actor_id, next(numbers))

        finalizer = weakref.finalize(handle, self._keeper.add, release)
        finalizer.atexit = False
        handle._raymc.when_shared = finalizer.detach

    def _note_ray_id(self, record: TaskRecord, ref: Any) -> None:
        """Remember Ray's id of a task; over Ray Client it is not known before a round trip."""

        def note() -> None:
            record.ray_id = ref.task_id().hex()

        if ref is None:
            return
        if self._chooser.home.over_client:
            self._keeper.add(note)
        else:
            note()


def _run_far(
    span: Span, task_id: str, code: Code, options: Mapping[str, Any], request: Request, decision: Decision
) -> Any:
    bridge = lazy_import.wire("bridge")
    repeatable = options.get("max_retries") != 0  # Ray repeats tasks unless it is told not to
    fallback = bridge.NEVER if not decision.home_holds else bridge.ALWAYS if repeatable else bridge.IF_UNSENT
    run = span.actor.run.options(num_returns=options.get("num_returns") or 1)
    return run.remote(task_id, span.teach(code), options, tuple(request.args), dict(request.kwargs), fallback)
