"""The body of a submission by Ray's rules, and the request that it becomes."""

from __future__ import annotations

import json
import secrets
import string
from typing import Any

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.service.request import JobRequest

#: What Ray's clients send, with what each value must be and how Ray calls that.
FIELDS: dict[str, tuple[tuple[type, ...], str]] = {
    "entrypoint": ((str,), "a string"),
    "submission_id": ((str,), "a string if provided"),
    "job_id": ((str,), "a string if provided"),
    "runtime_env": ((dict,), "a dict"),
    "metadata": ((dict,), "a dict"),
    "entrypoint_num_cpus": ((int, float), "a number"),
    "entrypoint_num_gpus": ((int, float), "a number"),
    "entrypoint_memory": ((int,), "an integer"),
    "entrypoint_resources": ((dict,), "a dict"),
    "entrypoint_label_selector": ((dict,), "a dict"),
}
_REQUEST = "TypeError: JobSubmitRequest.__init__()"
#: Without I, l, o, O and 0, which look like others.
_ID_LETTERS = "".join(sorted(set(string.ascii_letters + string.digits) - set("IloO0")))
_ID_LENGTH = 16


def new_submission_id() -> str:
    """Return an id as Ray makes them."""
    # One call for all letters: each one lets other threads run, and under load they do.
    number, letters = secrets.randbelow(len(_ID_LETTERS) ** _ID_LENGTH), ""
    for _ in range(_ID_LENGTH):
        number, letter = divmod(number, len(_ID_LETTERS))
        letters += _ID_LETTERS[letter]
    return f"raysubmit_{letters}"


def request_of(body: bytes, *, user: str) -> JobRequest:
    """Read a submission; what is wrong with its form is said as Ray says it."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):  # a UnicodeDecodeError is a ValueError
        raise InvalidRequest("the body must be a JSON object; this is no valid JSON") from None
    if not isinstance(data, dict):
        raise InvalidRequest(f"the body must be a JSON object, not {type(data).__name__}")
    given = {name: value for name, value in data.items() if value is not None}
    _check(given)
    old_id = given.pop("job_id", None)
    given["submission_id"] = given.get("submission_id") or old_id or new_submission_id()
    return JobRequest(**given, user=user)


def _check(given: dict[str, Any]) -> None:
    for name, value in given.items():
        if name not in FIELDS:
            raise InvalidRequest(f"{_REQUEST} got an unexpected keyword argument {name!r}")
        kinds, called = FIELDS[name]
        if not isinstance(value, kinds):
            raise InvalidRequest(f"TypeError: {name} must be {called}, got {type(value)}")
    if "entrypoint" not in given:
        raise InvalidRequest(f"{_REQUEST} missing 1 required positional argument: 'entrypoint'")
    for value in given.get("metadata", {}).values():
        if not isinstance(value, str):
            raise InvalidRequest(f"TypeError: metadata values must be strings, got {type(value)}")
