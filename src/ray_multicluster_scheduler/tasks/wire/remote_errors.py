"""Errors of user code, which keep their type across clusters, and errors for a lost cluster."""

from __future__ import annotations

import pickle

from ray import cloudpickle
from ray.exceptions import RayActorError, RayError, RayTaskError

from ray_multicluster_scheduler.errors import ClusterUnreachable, OutcomeUnknown


class ActorOutcomeUnknown(OutcomeUnknown, RayActorError):  # type: ignore[misc]
    """The actor is lost, and it is unknown whether this call was executed. It was not repeated."""

    def __init__(self, cluster: str, message: str) -> None:
        OutcomeUnknown.__init__(self, cluster, message)
        RayActorError.__init__(self, error_msg=f"cluster {cluster!r}: {message}")


def actor_lost_error(cluster: str, reason: str, *, sent: bool) -> Exception:
    """Return the error for a call to an actor whose cluster is lost; if `sent`, it may have been executed."""
    if sent:
        return ActorOutcomeUnknown(cluster, f"lost during the call, which may have been executed ({reason})")
    error: Exception = RayActorError(
        error_msg=f"the actor is gone with the connection to cluster {cluster!r} ({reason}); this call was "
        "not sent. Create the actor anew with submit_actor"
    )
    return error


def task_lost_error(cluster: str, reason: str, *, sent: bool) -> Exception:
    """Return the error for a task whose cluster is lost and that must not run elsewhere."""
    if sent:
        return OutcomeUnknown(
            cluster,
            f"lost while it ran the task, which may have been executed ({reason}); "
            "set max_retries to let it run again",
        )
    return ClusterUnreachable(
        cluster,
        f"connection lost before the task was sent, and no other cluster is large enough for it ({reason})",
    )


def serialize_error(error: BaseException) -> bytes:
    """Pickle the exception of a call, with the remote traceback as text."""
    cause = getattr(error, "cause", error) if isinstance(error, RayTaskError) else error
    try:
        content: bytes = cloudpickle.dumps((cause, str(error), cause is not error))
    except (TypeError, AttributeError, pickle.PicklingError):
        content = cloudpickle.dumps((RuntimeError(str(error)), str(error), False))
    return content


def deserialize_error(content: bytes) -> BaseException:
    """Return the exception to raise at home, as native Ray would raise it."""
    cause, text, from_user_code = pickle.loads(content)  # noqa: S301  (the hub sent it)
    error: BaseException = cause
    if from_user_code:
        if isinstance(cause, RayError):
            cause.from_user_code = True  # it tells nothing of the actor that was called
        error = RayTaskError("remote", text, cause).as_instanceof_cause()
    return error
