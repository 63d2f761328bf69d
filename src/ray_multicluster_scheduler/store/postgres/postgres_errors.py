"""What PostgreSQL's errors mean for the user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
from psycopg import errors as codes
from pydantic_core import PydanticSerializationError
from sqlalchemy.exc import DBAPIError, StatementError

from ray_multicluster_scheduler.errors import InvalidRequest, StoreBusy, StoreError, StoreOutcomeUnknown

#: It works again by itself, or when somebody has mended the server; nothing was written.
_PASSING = (
    codes.OperationalError,
    codes.InterfaceError,
    codes.SerializationFailure,
    codes.DeadlockDetected,
    codes.LockNotAvailable,
    codes.IdleInTransactionSessionTimeout,
    codes.ReadOnlySqlTransaction,  # until the failover is complete
    codes.DiskFull,
)
#: The same, by its code: not every version of the driver has a name for it.
_TRANSACTION_TIMEOUT = "25P04"
#: Their details show rows and values.
_WITH_VALUES = (psycopg.IntegrityError, psycopg.DataError)
_SENTENCES: dict[type[Exception], str] = {
    codes.LockNotAvailable: "another process kept it locked for too long; nothing was written. Try again",
    codes.IdleInTransactionSessionTimeout: "this process stood still while it wrote; nothing was written",
    codes.DiskFull: "its disk is full; nothing was written. Free some space and try again",
    codes.InsufficientPrivilege: "its user may not do this; grant it the rights on the schema",
    codes.InvalidPassword: "the password is wrong",
    codes.ReadOnlySqlTransaction: "it cannot be written: the server is a standby, or read-only",
}


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn the errors of the driver into ours. They carry no values: those may be secrets."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{error.object[:80]!r} is not valid Unicode text, so it can neither be stored nor looked for"
        ) from None
    except (OverflowError, PydanticSerializationError) as error:
        raise _unstorable(error) from error
    except (StatementError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, StatementError) else error
        # Not even a traceback shows what may be the environment of a job.
        raise _translated(where, error, cause) from None if isinstance(cause, _WITH_VALUES) else error


def outcome_unknown(where: str, cause: BaseException) -> StoreOutcomeUnknown:
    """Return the error for a connection that broke while a change was being committed."""
    return StoreOutcomeUnknown(
        f"the job store {where}: the connection broke off during a commit, so this may or may not have been "
        f"written ({_first_line(cause)}). Repeat it with the same submission_id or idempotency_key: then "
        "nothing is done twice"
    )


def _translated(where: str, error: Exception, cause: BaseException | None) -> Exception:
    if not isinstance(error, (DBAPIError, psycopg.Error)) or isinstance(cause, psycopg.DataError):
        return _unstorable(cause)
    sentence = next((text for kind, text in _SENTENCES.items() if isinstance(cause, kind)), None)
    passes = isinstance(cause, _PASSING) or getattr(cause, "sqlstate", None) == _TRANSACTION_TIMEOUT
    kind = StoreBusy if passes else StoreError
    return kind(f"the job store {where}: {sentence or _first_line(cause)}")


def _unstorable(cause: BaseException | None) -> InvalidRequest:
    return InvalidRequest(
        "a value can neither be stored nor looked for: texts must be valid Unicode without NUL, and numbers "
        f"must fit into 64 bits ({_first_line(cause)})"
    )


def _first_line(cause: BaseException | None) -> str:
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]
