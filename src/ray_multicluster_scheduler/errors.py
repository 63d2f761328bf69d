"""The one exception tree.

    SchedulerError
    ├── ConfigError           clusters.yaml cannot be used
    │   ├── ConfigNotFound       (RuntimeError)  there is none anywhere we look
    │   └── ConfigInvalid        (ValueError)    it has problems; all of them are listed
    ├── InvalidRequest        (ValueError)    the caller asked for something impossible
    │   ├── InvalidRuntimeEnv
    │   ├── InvalidEntrypoint
    │   ├── InvalidResources
    │   ├── NeverFits
    │   ├── DuplicateSubmission
    │   ├── DependencyProblem
    │   └── PackageProblem
    ├── JobNotFound           (LookupError)
    ├── JobsFailed            (RuntimeError)  raised by waiting
    ├── WaitTimeout           (TimeoutError)  raised by waiting
    ├── ItemFailed            (RuntimeError)  the cause of what an item of a map raised: which one, and where
    ├── NoClusterAvailable    (RuntimeError)  no cluster can take this work now
    ├── NoQueueHere           (RuntimeError)  a program inside a job has no queue without a server
    ├── HomeLost              (ConnectionError)  this program has lost its connection to its home cluster
    ├── ClusterError          one call to one Ray cluster went wrong
    │   ├── ClusterUnreachable   nothing was executed: refused, no route, unknown host
    │   ├── ClusterTimeout       no answer within the deadline; the call may still be executed
    │   ├── ClusterAuthFailed    the cluster wants a token, or another one
    │   ├── ClusterBadAnswer     an answer that is not what Ray would send; outcome unknown
    │   ├── OutcomeUnknown       a task or an actor call was sent and its answer is lost
    │   └── ClusterRefused       Ray answered with an error status
    │       ├── RemoteJobExists     this submission id is taken on the cluster
    │       └── RemoteJobNotFound   the cluster does not know this id
    ├── ServerError           (ConnectionError)  our own server, which this program was told to use
    │   ├── ServerUnreachable    nothing was executed: refused, no route, unknown host, TLS
    │   ├── ServerTimeout        (TimeoutError)  no answer in time; the call may still be executed
    │   ├── ServerLost           the connection broke; outcome unknown
    │   └── ServerBadAnswer      not our server, or another version
    ├── PipelineFailed        (RuntimeError)  an operator could not do its work on the data
    ├── StoreError            (RuntimeError)
    │   ├── StoreBusy            locked by another process, or the disk is full: it may work again soon
    │   │   └── StoreOutcomeUnknown  the connection broke during a commit: repeat it with the same id
    │   ├── StaleTransition      somebody else moved the job first
    │   ├── LeaseLost            another scheduler leads now; this one must stop writing
    │   └── ForeignStore         the store is not the one this configuration belongs to
    └── SandboxError          (RuntimeError)  the local clusters could not be started or stopped

A message says what happened, to which thing, and what to do next. Data are attributes, never parsed
from the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class SchedulerError(Exception):
    """Base of all errors that this package raises on purpose. All of them can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, pickle would pass the finished message to __init__, which takes other arguments.
        return restored, (type(self), self.args, self.__dict__)


def restored(kind: type[SchedulerError], args: tuple[Any, ...], state: dict[str, Any]) -> SchedulerError:
    """Rebuild an error that was pickled in another process."""
    error = kind.__new__(kind, *args)
    error.args = args  # subclasses of OSError set them in __init__, which is not called
    error.__dict__.update(state)
    return error


class ConfigError(SchedulerError):
    """The configuration cannot be used."""


class ConfigNotFound(ConfigError, RuntimeError):
    """No configuration file was found."""

    def __init__(self, looked_at: Sequence[str]) -> None:
        places = "".join(f"\n  - {place}" for place in looked_at)
        super().__init__(
            f"no clusters.yaml found; looked at:{places}\n"
            "Write one (docs/configuration.md), name it with --config FILE or RAY_MULTICLUSTER_CONFIG, "
            "or run `raymc local up` for clusters on this machine."
        )
        self.looked_at = tuple(looked_at)


class ConfigInvalid(ConfigError, ValueError):
    """A configuration file has problems; `problems` lists every one of them."""

    def __init__(self, path: str, problems: Sequence[str]) -> None:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{path}: {count}" + "".join(f"\n  - {problem}" for problem in problems))
        self.path = path
        self.problems = tuple(problems)


class InvalidRequest(SchedulerError, ValueError):
    """The caller asked for something impossible."""


class InvalidRuntimeEnv(InvalidRequest):
    """Ray would refuse or misread this runtime_env."""


class InvalidEntrypoint(InvalidRequest):
    """The entrypoint is empty or uses a path that no cluster could resolve."""


class InvalidResources(InvalidRequest):
    """A resource request is not a mapping of names to non-negative numbers."""


class NeverFits(InvalidRequest):
    """No cluster could ever hold this request."""


class DuplicateSubmission(InvalidRequest):
    """The submission id is taken."""


class DependencyProblem(InvalidRequest):
    """A dependency is unknown or would make a cycle."""


class PackageProblem(InvalidRequest):
    """A local directory cannot be packed: missing, or larger than Ray accepts."""


class JobNotFound(SchedulerError, LookupError):
    """No job has this id, or several begin with it; `nearest` is one that the user may have meant."""

    def __init__(self, submission_id: str, *, nearest: str | None = None, several: str | None = None) -> None:
        """`several`: how many jobs begin with it, such as "15"."""
        guess = f"did you mean {nearest!r}? " if nearest else ""
        told = f"no job has the id {submission_id!r}; {guess}`raymc jobs` lists the known ones"
        if several is not None:
            told = (
                f"{several} jobs begin with {submission_id!r}; write more of the id. `raymc jobs` lists them"
            )
        super().__init__(told)
        self.submission_id = submission_id


class NotAuthenticated(SchedulerError, PermissionError):
    """A server wants a token, and got none or an invalid one."""


class Forbidden(SchedulerError, PermissionError):
    """The caller is known but may not do this."""


class TooManyRequests(SchedulerError, RuntimeError):
    """The caller asks a server more often, or for more at once, than one user may. Nothing was done."""


class QuotaExceeded(InvalidRequest):
    """The user has as many jobs, or claims as much, as one user may have at once."""


class JobsFailed(SchedulerError, RuntimeError):
    """At least one job that was waited for did not succeed."""

    def __init__(self, message: str, submission_ids: Sequence[str]) -> None:
        super().__init__(message)
        self.submission_ids = tuple(submission_ids)


class WaitTimeout(SchedulerError, TimeoutError):
    """The time to wait is over. The message says what happens to the jobs now."""

    def __init__(self, message: str, submission_ids: Sequence[str], *, failed: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.submission_ids = tuple(submission_ids)
        #: Jobs that had ended without success by then.
        self.failed = tuple(failed)


class ItemFailed(SchedulerError, RuntimeError):
    """Says which item of a map has failed, and where: the `__cause__` of what the function has raised."""

    def __init__(self, message: str, *, item: Any, number: int, cluster: str, traceback: str) -> None:
        super().__init__(message)
        self.item = item
        #: Its place in the input, from 0.
        self.number = number
        self.cluster = cluster
        #: As the cluster has written it; empty if the item was lost with its worker.
        self.traceback = traceback


class NoClusterAvailable(SchedulerError, RuntimeError):
    """No cluster can take this task, actor or job now; one that is down or drained might, later."""


class NoQueueHere(SchedulerError, RuntimeError):
    """A program inside a job asks for jobs, and was told no server that has them."""

    def __init__(self, submission_id: str) -> None:
        super().__init__(
            f"this program runs inside job {submission_id!r} and was told no server, so there is no queue of "
            "jobs here: one on this node would be seen by nobody. Submit through `raymc serve`, whose jobs "
            "reach its queue (docs/how-to/use-a-server.md; a server on another machine needs --public-url). "
            "submit_task and submit_actor need no server"
        )
        self.submission_id = submission_id


class SchedulerNotStarted(SchedulerError, RuntimeError):
    """Nobody schedules, and no scheduler could be started in the background."""

    @classmethod
    def because(cls, why: str) -> SchedulerNotStarted:
        """Return the error with its reason."""
        return cls(
            f"no scheduler could be started in the background: {why.rstrip('.')}. Jobs that were accepted "
            "are kept; the next raymc command tries again"
        )


class HomeLost(SchedulerError, ConnectionError):
    """The connection to the home cluster is lost, and with it all tasks and actors of this program.

    It is a ConnectionError because plain `ray.get` raises one for the same reason.
    """

    def __init__(self, cluster: str, reason: str) -> None:
        super().__init__(
            f"this program has lost its home cluster {cluster!r} ({reason}); its tasks and actors are gone "
            "with it, and so are their results. Call .stop() of the scheduler and "
            "initialize_scheduler_environment() to begin anew"
        )
        self.cluster = cluster


class ClusterError(SchedulerError):
    """One call to one Ray cluster went wrong."""

    def __init__(self, cluster: str, message: str) -> None:
        super().__init__(f"cluster {cluster!r}: {message}")
        self.cluster = cluster
        self.detail = message


class ClusterUnreachable(ClusterError):
    """No connection could be made, so nothing was executed.

    `refused` tells a machine that answers "nobody listens here" from one that cannot be found at all.
    """

    def __init__(self, cluster: str, message: str, *, refused: bool = False) -> None:
        super().__init__(cluster, message)
        self.refused = refused


class ClusterTimeout(ClusterError):
    """No answer within the deadline. The call may have been executed, or may be later."""


class ClusterAuthFailed(ClusterError):
    """The cluster wants a token, or another token than the one it was given."""


class ClusterBadAnswer(ClusterError):
    """The answer is not what Ray would send (HTML, cut JSON, lost in the middle). Outcome unknown."""


class OutcomeUnknown(ClusterError):
    """A task or an actor call was sent, and the cluster was lost before its answer came.

    It may have been executed, so it was not repeated. Where that does no harm, say so with `max_retries`.
    """


class ClusterRefused(ClusterError):
    """Ray answered with an error status; `status` and `body` are its own words, shortened."""

    def __init__(self, cluster: str, message: str, *, status: int, body: str = "") -> None:
        super().__init__(cluster, message)
        self.status = status
        self.body = body


class RemoteJobExists(ClusterRefused):
    """A job with this submission id is on the cluster already."""


class RemoteJobNotFound(ClusterRefused):
    """The cluster does not know this submission id."""


class ServerError(SchedulerError, ConnectionError):
    """The server that this program was told to use (`RAY_MULTICLUSTER_ADDRESS`) cannot be used."""

    def __init__(self, address: str, message: str) -> None:
        super().__init__(f"the scheduler's server at {address}: {message}")
        self.address = address


class ServerUnreachable(ServerError):
    """No connection could be made, so nothing was executed."""


class ServerTimeout(ServerError, TimeoutError):
    """No answer within the deadline. The call may have been executed, or may be later."""


class ServerLost(ServerError):
    """The connection broke before the whole answer was here. The call may have been executed."""


class ServerBadAnswer(ServerError):
    """The answer is not what our server of this version would send."""


class PipelineFailed(SchedulerError, RuntimeError):
    """An operator could not do its work on the data; the message names it and its columns."""


class StoreError(SchedulerError, RuntimeError):
    """The job store cannot do what was asked."""


class StoreBusy(StoreError):
    """The store cannot be written now, and nothing was written. Try again when the reason is gone."""


class StoreOutcomeUnknown(StoreBusy):
    """The connection to the store broke off during a commit: it may or may not have been written.

    Repeat the call with the same submission id or idempotency key; nothing is then done twice.
    """


class StaleTransition(StoreError):
    """Somebody else moved the job first. Read it again and decide anew."""


class LeaseLost(StoreError):
    """Another scheduler holds the leader lease now; this one must stop writing."""


class ForeignStore(StoreError):
    """The store is not the one that belongs here. It does not show that no jobs are running."""


class SandboxError(SchedulerError, RuntimeError):
    """The local clusters could not be started or stopped."""


# Errors as JSON, and back: a client of the server raises what the server's service raised.
#
# `{"error": {"type": "JobNotFound", "message": "no job ...", "details": {"submission_id": "..."}}}`.
# The details are the attributes of the error.


def error_json(error: SchedulerError) -> dict[str, Any]:
    """Return the body that tells of an error."""
    details = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return {"error": {"type": type(error).__name__, "message": str(error), "details": details}}


def error_from(body: object) -> SchedulerError | None:
    """Return the error that a body tells of, of its own class; None: this body tells of none.

    A class that only a newer server has becomes a plain `SchedulerError` with the same message.
    """
    told = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(told, Mapping) or not isinstance(told.get("message"), str):
        return None
    kind = globals().get(str(told.get("type")))
    if not (isinstance(kind, type) and issubclass(kind, SchedulerError)):
        kind = SchedulerError
    details = told.get("details")
    attributes = details.items() if isinstance(details, Mapping) else ()
    return restored(
        kind, (told["message"],), {name: _kept(value) for name, value in attributes if isinstance(name, str)}
    )


def _kept(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
