"""Tasks and actors: submit, look, cancel, kill. Results are home ObjectRefs for plain `ray.get`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ray_multicluster_scheduler.client.current import get_unified_scheduler
from ray_multicluster_scheduler.client.tracebacks import ends_at_the_caller
from ray_multicluster_scheduler.core.actor_pool import Demand
from ray_multicluster_scheduler.errors import InvalidRequest, SchedulerError
from ray_multicluster_scheduler.model.decision import Cause
from ray_multicluster_scheduler.tasks.actor_pool import ActorPool
from ray_multicluster_scheduler.tasks.pool_driver import PoolDriver, RayActors
from ray_multicluster_scheduler.tasks.submitter import TaskRequest

if TYPE_CHECKING:
    from ray import ObjectRef

A = TypeVar("A")

#: A pool asks about so many of the jobs that wait.
MOST_WAITING_JOBS = 20


T = TypeVar("T")


@overload
def submit_task(
    func: Callable[..., T],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    resource_requirements: Mapping[str, float] | None = None,
    tags: Sequence[str] | None = None,
    name: str = "",
    preferred_cluster: str | None = None,
    *,
    num_returns: None = None,
    max_retries: int | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> tuple[str, ObjectRef[T]]: ...
@overload
def submit_task(
    func: Any,  # with `@ray.remote`, or with several results
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    resource_requirements: Mapping[str, float] | None = None,
    tags: Sequence[str] | None = None,
    name: str = "",
    preferred_cluster: str | None = None,
    *,
    num_returns: int | None = None,
    max_retries: int | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> tuple[str, Any]: ...
@ends_at_the_caller
def submit_task(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    resource_requirements: Mapping[str, float] | None = None,
    tags: Sequence[str] | None = None,
    name: str = "",
    preferred_cluster: str | None = None,
    *,
    num_returns: int | None = None,
    max_retries: int | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> tuple[str, Any]:
    """Start a task on the home cluster, or on another one that has room, and return its id and its ref.

    Args:
        func: A function, plain or with `@ray.remote`.
        args: Its arguments; ObjectRefs among them are replaced by their values.
        kwargs: Its keyword arguments.
        resource_requirements: `CPU`, `GPU`, `memory` (GiB, or bytes from 2**20) and custom names. One CPU
            when nothing is said.
        tags: Clusters with the same tags are favoured when home has no room.
        name: Shown by Ray's dashboard.
        preferred_cluster: Goes first; another one is taken when it has no room.
        num_returns: How many results the function returns; the ref becomes a list of refs.
        max_retries: As in Ray. Anything but 0 allows to run it again at home when its cluster is lost.
        runtime_env: Added to the environment of the cluster and of this program.

    Raises:
        ValueError: The request is refused, or is larger than any cluster.
        RuntimeError: No configuration was found, or no cluster can take it now.
    """
    options = {"num_returns": num_returns, "max_retries": max_retries, "runtime_env": runtime_env}
    return get_unified_scheduler().tasks.submit_task(
        TaskRequest(
            code=func,
            args=args,
            kwargs=kwargs or {},
            resource_requirements=resource_requirements,
            tags=tags or (),
            name=name,
            preferred_cluster=preferred_cluster,
            options=options,
        )
    )


@ends_at_the_caller
def submit_actor(
    actor_class: type | Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    resource_requirements: Mapping[str, float] | None = None,
    tags: Sequence[str] | None = None,
    name: str = "",
    preferred_cluster: str | None = None,
    timeout: float | None = None,
    *,
    max_restarts: int | None = None,
    max_task_retries: int | None = None,
    max_concurrency: int | None = None,
    lifetime: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> tuple[str, Any]:
    """Start an actor on the home cluster, or on another one that has room, and return its id and its handle.

    The handle is used like Ray's own, wherever the actor is: `ray.get(handle.method.remote(...))`. The actor
    ends when its handle is gone, when the program ends, or with `kill_actor`.

    Args:
        actor_class: A class, plain or with `@ray.remote`.
        args: Arguments of its constructor.
        kwargs: Keyword arguments of its constructor.
        resource_requirements: As for `submit_task`; what the actor holds while it lives. Nothing by default.
        tags: As for `submit_task`.
        name: A name for `ray.get_actor` on the cluster where it is.
        preferred_cluster: As for `submit_task`.
        timeout: Wait until the actor is ready, for this many seconds at most. Without it, nobody waits: the
            first call of a method does.
        max_restarts: As in Ray, on the actor's cluster.
        max_task_retries: As in Ray, on the actor's cluster.
        max_concurrency: As in Ray.
        lifetime: As in Ray; "detached" lets the actor outlive this program.
        runtime_env: As for `submit_task`.

    Raises:
        ValueError: The request is refused, is larger than any cluster, or the name is taken.
        RuntimeError: No configuration was found, or no cluster can take it now.
        TimeoutError: The actor was not ready within `timeout` seconds; it was given up.
    """
    options = {
        "max_restarts": max_restarts,
        "max_task_retries": max_task_retries,
        "max_concurrency": max_concurrency,
        "lifetime": lifetime,
        "runtime_env": runtime_env,
    }
    tasks = get_unified_scheduler().tasks
    actor_id, handle = tasks.submit_actor(
        TaskRequest(
            code=actor_class,
            args=args,
            kwargs=kwargs or {},
            resource_requirements=resource_requirements,
            tags=tags or (),
            name=name,
            preferred_cluster=preferred_cluster,
            options=options,
        )
    )
    if timeout is not None:
        tasks.operations.wait_until_ready(actor_id, handle, timeout_s=timeout)
    return actor_id, handle


@ends_at_the_caller
def submit_actor_async(
    actor_class: type | Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    resource_requirements: Mapping[str, float] | None = None,
    tags: Sequence[str] | None = None,
    name: str = "",
    preferred_cluster: str | None = None,
) -> tuple[str, Any]:
    """Start an actor and do not wait for it: `submit_actor` without `timeout`, by its older name."""
    return submit_actor(actor_class, args, kwargs, resource_requirements, tags, name, preferred_cluster)


@ends_at_the_caller
def submit_actor_pool(
    actor_class: Callable[..., A],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    resource_requirements: Mapping[str, float] | None = None,
    tags: Sequence[str] | None = None,
    name: str = "",
    preferred_cluster: str | None = None,
    timeout: float | None = None,
    *,
    size: int | Literal["fit"] = "fit",
    max_size: int | None = None,
    max_restarts: int | None = None,
    max_task_retries: int | None = None,
    max_concurrency: int | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> ActorPool[A]:
    """Start equal actors on all clusters, and return a pool that shares calls out among them.

    It returns as soon as the first actor has room, and starts the others in the background. An actor that is
    lost is replaced. Use it with `with`, or call `.stop()`: until then the actors hold what they claim.

    Args:
        actor_class: A class, plain or with `@ray.remote`.
        args: Arguments of its constructor, the same for every actor.
        kwargs: Keyword arguments of its constructor.
        resource_requirements: As for `submit_actor`; what each actor holds. "fit" needs it.
        tags: As for `submit_actor`.
        name: The names of the actors begin with it.
        preferred_cluster: Goes first; another one is taken when it has no room.
        timeout: Wait for room for the first actor for this many seconds at most. Without it, a warning says
            what it waits for.
        size: How many actors; "fit": as many as have room, more when room appears, fewer when others' jobs
            wait for that room (docs/tasks-and-actors.md).
        max_size: The most for "fit".
        max_restarts: As in Ray; 0 lets the pool replace the actor, on any cluster.
        max_task_retries: As in Ray, on the actor's cluster.
        max_concurrency: As in Ray; each actor gets so many calls at once, and one by default.
        runtime_env: As for `submit_task`.

    Raises:
        ValueError: The request is refused, or one actor is larger than any cluster.
        RuntimeError: No configuration was found.
        TimeoutError: There was no room within `timeout` seconds.
    """
    if size != "fit" and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise InvalidRequest(f"size must be 'fit' or a number of actors from 1 on, not {size!r}")
    if max_size is not None and (size != "fit" or max_size < 1):
        raise InvalidRequest(f"max_size={max_size!r} is the most for size='fit', from 1 on")
    options = {
        "max_restarts": max_restarts,
        "max_task_retries": max_task_retries,
        "max_concurrency": max_concurrency,
        "runtime_env": runtime_env,
    }
    request = TaskRequest(
        code=actor_class,
        args=args,
        kwargs=kwargs or {},
        resource_requirements=resource_requirements,
        tags=tags or (),
        name=name,
        preferred_cluster=preferred_cluster,
        options=options,
    )
    tasks = get_unified_scheduler().tasks
    about = tasks.about_actor(request)
    if size == "fit" and not about.claim:
        raise InvalidRequest(
            "size='fit' needs resource_requirements, such as {'CPU': 1}: any number of actors that claim "
            "nothing fit"
        )
    actors = RayActors(tasks, request, _waiting_jobs)
    driver = PoolDriver(actors, about, size=None if size == "fit" else size, max_size=max_size)
    driver.begin(timeout)
    return ActorPool(driver, about)


def _waiting_jobs() -> list[Demand]:
    """Return what the jobs claim that wait for room, as far as this program can see the queue."""
    with suppress(SchedulerError):  # it has none, or may not see it
        return [
            Demand(
                claim=job.resource_requirements,
                clusters=frozenset({job.only_cluster}) if job.only_cluster else None,
            )
            for job in get_unified_scheduler().service.queue(limit=MOST_WAITING_JOBS)
            if job.wait_reason == Cause.NO_ROOM.value
        ]
    return []


@ends_at_the_caller
def cancel_task(task: Any, *, force: bool = False) -> bool:
    """Cancel a task, by its id or its ref; False when the id is not known (any more)."""
    return get_unified_scheduler().tasks.operations.cancel_task(task, force=force)


@ends_at_the_caller
def kill_actor(actor: Any, *, no_restart: bool = True) -> bool:
    """End an actor at once, by its id or its handle; False when the id is not known."""
    return get_unified_scheduler().tasks.operations.kill_actor(actor, no_restart=no_restart)


@ends_at_the_caller
def get_task_status(task_id: str) -> str:
    """Return PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED, or UNKNOWN.

    Ray tells it with a delay of about a second, and remembers some ten thousand tasks.
    """
    return get_unified_scheduler().tasks.operations.task_status(task_id)


@ends_at_the_caller
def get_task_result(task_id: str, timeout: float | None = None) -> Any:
    """Wait for a task of this program and return its result: `ray.get` by the task's id.

    The result is there as long as the program holds the ref that `submit_task` returned. Raises what the task
    raised, TimeoutError after `timeout` seconds, and ValueError for an id or a result that is not known.
    """
    return get_unified_scheduler().tasks.operations.task_result(task_id, timeout_s=timeout)


@ends_at_the_caller
def get_actor_status(actor_id: str) -> str:
    """Return PENDING, ALIVE, RESTARTING, DEAD, or UNKNOWN; Ray tells it with a delay of about a second."""
    return get_unified_scheduler().tasks.operations.actor_status(actor_id)


@ends_at_the_caller
def get_actor_result(actor_id: str) -> Any:
    """Return the handle of an actor that this program has submitted and still holds; else ValueError."""
    return get_unified_scheduler().tasks.operations.actor_handle(actor_id)


@ends_at_the_caller
def list_actors() -> list[dict[str, Any]]:
    """Return the actors of this program that have not ended, with their clusters."""
    return get_unified_scheduler().tasks.operations.list_actors()


@ends_at_the_caller
def explain_task(any_id: str) -> dict[str, Any]:
    """Return why a task or an actor is where it is: per cluster its score, or why it was no candidate."""
    return get_unified_scheduler().tasks.operations.explain(any_id)
