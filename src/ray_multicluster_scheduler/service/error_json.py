"""Errors as JSON, and back: a client of the server raises what the server's service raised.

`{"error": {"type": "JobNotFound", "message": "no job has the id ...", "details": {"submission_id": "..."}}}`.
The details are the attributes of the error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray_multicluster_scheduler import errors
from ray_multicluster_scheduler.errors import SchedulerError


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
    kind = getattr(errors, str(told.get("type")), None)
    if not (isinstance(kind, type) and issubclass(kind, SchedulerError)):
        kind = SchedulerError
    details = told.get("details")
    attributes = details.items() if isinstance(details, Mapping) else ()
    return errors.restored(
        kind, (told["message"],), {name: _kept(value) for name, value in attributes if isinstance(name, str)}
    )


def _kept(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
