"""Parses Ray's JSON and the text of `ray status` into our records.

Pure; every unexpected value raises `MalformedAnswer`.

All data of a cluster passes through here, and the result fits into the store: texts are valid Unicode
without NUL and of bounded length, numbers fit into 64 bits, times are before the year 10000, and lists are
bounded.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from ray_multicluster_scheduler.environment.setup_failure import fails_again, setup_error
from ray_multicluster_scheduler.model.cluster import Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import (
    AttemptStatus,
    FailureKind,
    InventoryRow,
    SessionDriver,
    Sighting,
)
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer
from ray_multicluster_scheduler.text import BYTES

# Maps the error types and messages of Ray's FAILED jobs to our kinds of failure.


_BY_ERROR_TYPE: Mapping[str, FailureKind] = {
    "RUNTIME_ENV_SETUP_FAILURE": FailureKind.ENVIRONMENT,
    "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE": FailureKind.UNSCHEDULABLE,
    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT": FailureKind.UNSCHEDULABLE,
    "JOB_SUPERVISOR_ACTOR_START_FAILURE": FailureKind.SUPERVISOR,
    "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE": FailureKind.SUPERVISOR,
    "JOB_SUPERVISOR_ACTOR_DIED": FailureKind.SUPERVISOR,
    "JOB_ENTRYPOINT_COMMAND_START_ERROR": FailureKind.USER,
    "JOB_ENTRYPOINT_COMMAND_ERROR": FailureKind.USER,
}


def failure_kind(*, error_type: str | None, exit_code: int | None, message: str) -> FailureKind:
    """Return why a job is FAILED. In older Rays without error_type, an exit code means the program failed."""
    if error_type is not None:
        kind = _BY_ERROR_TYPE.get(error_type, FailureKind.SUPERVISOR)
    elif exit_code is not None:
        kind = FailureKind.USER
    elif message.startswith("runtime_env setup failed"):
        kind = FailureKind.ENVIRONMENT
    else:
        kind = FailureKind.SUPERVISOR
    permanent = kind is FailureKind.ENVIRONMENT and fails_again(message)
    return FailureKind.NO_ENVIRONMENT if permanent else kind


#: `CPU_group_<id>` and `CPU_group_0_<id>`: reserved by a placement group, and also counted as `CPU`.
_GROUP_RESOURCE = re.compile(r"_group_(\d+_)?[0-9a-f]+$")
#: Larger numbers cannot be stored, and are not plausible as an amount, a count or an exit code.
_TOO_MUCH = 2**63
#: The end of the year 9999, the last one that `datetime` supports.
_LAST_SECOND = 253_402_300_799
#: Limits on ids, versions, resources and labels: longer names are cut, and further ones are dropped.
_NAME_CHARS = 500
MAX_NAMES = 1_000
#: Most pending demands that are read from a cluster.
MAX_DEMANDS = 1_000
#: Ray's messages include the end of a log, of at most 20,000 characters.
_MESSAGE_CHARS = 100_000
_LEFT_OUT = "\n[...]\n"
#: Ray's five job statuses have the same names as ours.
_STATUS: Mapping[str, AttemptStatus] = {status.value: status for status in AttemptStatus}
#: For these, Ray's message is a traceback around the output of pip or conda.
_SETUP_FAILURES = frozenset({FailureKind.ENVIRONMENT, FailureKind.NO_ENVIRONMENT})
#: No process id has so many digits.
_PID_DIGITS = 16
#: Characters that are valid in JSON, but not in a text column or a file.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def json_object(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object."""
    return _object(json.loads(raw), "the answer")


def version(answer: Mapping[str, Any]) -> RemoteVersion:
    """Read `GET /api/version`."""
    return RemoteVersion(
        api_version=_name(answer, "version"),
        ray_version=_name(answer, "ray_version"),
        session_name=_name_or_none(answer, "session_name"),
    )


def python_version(answer: Mapping[str, Any]) -> str | None:
    """Read `GET /api/v0/cluster_metadata`."""
    return _name_or_none(_data(answer), "pythonVersion")


def nodes(answer: Mapping[str, Any]) -> tuple[Node, ...]:
    """Read `GET /api/v0/nodes`."""
    rows = _list(_object(_data(answer).get("result"), "result").get("result"), "the list of nodes")
    parsed = tuple(_node(_object(row, "a node")) for row in rows)
    names = dict.fromkeys(name for node in parsed for name in node.resources)
    if len(names) <= MAX_NAMES:
        return parsed
    first_names = frozenset(islice(names, MAX_NAMES))
    return tuple(replace(node, resources=_only(first_names, node.resources)) for node in parsed)


def _only(names: Collection[str], amounts: Resources) -> Resources:
    return {name: amount for name, amount in amounts.items() if name in names}


def _node(row: Mapping[str, Any]) -> Node:
    labels = _object(row.get("labels") or {}, "labels")
    return Node(
        node_id=_name(row, "node_id"),
        address=_name(row, "node_ip"),
        alive=_name(row, "state") == "ALIVE",
        is_head=row.get("is_head_node") is True,
        resources=_amounts(row.get("resources_total") or {}),
        labels={short(name): short(word(value)) for name, value in islice(labels.items(), MAX_NAMES)},
    )


def usage(answer: Mapping[str, Any]) -> Usage | None:
    """Read the JSON of `GET /api/cluster_status`; None if it has no usage, as with autoscaler v2."""
    status = _data(answer).get("clusterStatus")
    report = status.get("loadMetricsReport") if isinstance(status, dict) else None
    if not isinstance(report, dict) or not report.get("usage"):
        return None
    # The dashboard rewrites keys (object_store_memory -> objectStoreMemory, my_res -> myRes), except inside
    # of lists: the node types have the original names.
    shapes = [_object(shape, "a node type") for shape, _ in _pairs(report.get("nodeTypes"))]
    names = dict.fromkeys(name for shape in shapes for name in shape if _is_countable(name))
    true_names = {camel_case(name): name for name in islice(names, MAX_NAMES)}
    rows = {
        short(true_names[name]): row
        for name, row in _object(report["usage"], "usage").items()
        if name in true_names
    }
    amounts = {name: pair for name, row in rows.items() if (pair := _used_and_total(row)) is not None}
    if not amounts:
        return None
    return Usage(
        total={name: total for name, (_, total) in amounts.items()},
        used={name: used for name, (used, _) in amounts.items()},
        pending=_pending(report),
    )


def camel_case(name: str) -> str:
    """Rewrite a key as Ray's dashboard does."""
    first, *others = name.split("_")
    return first + "".join(part.title() for part in others)


def _is_countable(name: str) -> bool:
    """Tell whether this is a real resource, and not the marker of a node or a part of a placement group."""
    return not name.startswith("node:") and not _GROUP_RESOURCE.search(name)


def _used_and_total(row: object) -> tuple[float, float] | None:
    if not isinstance(row, list) or len(row) != 2:
        raise MalformedAnswer(f"a usage is [used, total], not {type(row).__name__}")
    used, total = number(row[0]), number(row[1])
    return None if used is None or total is None else (used, total)


def _pending(report: Mapping[str, Any]) -> tuple[tuple[Resources, int], ...] | None:
    """Return the pending demands: tasks and actors outside of placement groups, and whole groups."""
    if not isinstance(report.get("resourceDemand"), list):
        return None
    demands: list[tuple[Resources, int]] = []
    for shape, times in _pairs(report["resourceDemand"]):
        bundle = _object(shape, "a demand")
        if bundle and all(
            map(_is_countable, bundle)
        ):  # others wait for resources that their group already holds
            demands.append((_amounts(bundle), count(times)))
    for group, groups in _pairs(report.get("pgDemand")):
        for shape, times in _pairs(_object(group, "a placement group").get("bundles")):
            demands.append((_amounts(shape), count(count(times) * count(groups))))
    return tuple(demands[:MAX_DEMANDS])


def sighting(answer: Mapping[str, Any]) -> Sighting:
    """Read one submission."""
    status_name, exit_code = _name(answer, "status"), whole(answer.get("driver_exit_code"))
    if (status := _STATUS.get(status_name)) is None:
        raise MalformedAnswer(f"unknown job status {status_name[:40]!r}")
    message = _shortened(text_or_none(answer, "message") or "")
    error_type, failure = _name_or_none(answer, "error_type"), None
    if status is AttemptStatus.FAILED:
        failure = failure_kind(error_type=error_type, exit_code=exit_code, message=message)
    return Sighting(
        remote_id=_name(answer, "submission_id"),
        status=status,
        message=setup_error(message) if failure in _SETUP_FAILURES else message,
        failure=failure,
        error_type=error_type,
        exit_code=exit_code,
        started_at=seconds(answer.get("start_time")),
        ended_at=seconds(answer.get("end_time")),
        node_id=_name_or_none(answer, "driver_node_id"),
        metadata=metadata(answer),
    )


def metadata(answer: Mapping[str, Any]) -> dict[str, str]:
    """Read the metadata of a job or a driver."""
    return {
        _clean(name): _clean(word(value))
        for name, value in _object(answer.get("metadata") or {}, "metadata").items()
    }


def driver(answer: Mapping[str, Any]) -> SessionDriver:
    """Read `GET /api/jobs/{id}` with Ray's id of a driver."""
    process = _object(answer.get("driver_info") or {}, "driver_info")
    pid = process.get("pid")
    return SessionDriver(
        is_alive=_name(answer, "status") in {"PENDING", "RUNNING"},
        pid=int(pid) if isinstance(pid, str) and pid.isdecimal() and len(pid) < _PID_DIGITS else whole(pid),
        address=_name_or_none(process, "node_ip_address"),
        metadata=metadata(answer),
    )


def inventory_row(row: Mapping[str, Any]) -> InventoryRow | None:
    """Read the fields of a row of `GET /api/jobs/` that filters need; None if it has no id."""
    is_driver = row.get("type", "SUBMISSION") != "SUBMISSION"
    remote_id = row.get("job_id" if is_driver else "submission_id")
    status, metadata = row.get("status"), row.get("metadata")
    if not isinstance(remote_id, str):
        return None
    return InventoryRow(
        remote_id,
        _STATUS.get(status) if isinstance(status, str) else None,
        metadata if isinstance(metadata, dict) else {},
        is_driver,
    )


def status_text(answer: Mapping[str, Any]) -> str:
    """Read the text of `GET /api/cluster_status?format=1`."""
    return text_or_none(_data(answer), "clusterStatus") or ""


def flag(answer: Mapping[str, Any], key: str) -> bool:
    """Read a boolean, such as `stopped` in `{"stopped": true}`."""
    value = answer.get(key)
    if not isinstance(value, bool):
        raise MalformedAnswer(f"{key!r} must be true or false")
    return value


def _data(answer: Mapping[str, Any]) -> dict[str, Any]:
    if answer.get("result") is False:
        raise MalformedAnswer("it says that it failed, with the status of a success")
    return _object(answer.get("data"), "data")


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedAnswer(f"{what} must be a JSON object, not {type(value).__name__}")
    return value


def _list(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedAnswer(f"{what} must be a JSON array, not {type(value).__name__}")
    return value


def _pairs(value: object) -> list[tuple[Any, Any]]:
    rows = _list(value if value is not None else [], "a list of pairs")
    if not all(isinstance(row, list) and len(row) == 2 for row in rows):
        raise MalformedAnswer("a list of pairs holds something else")
    return [(row[0], row[1]) for row in rows]


def _text(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    if not isinstance(value, str):
        raise MalformedAnswer(f"{key!r} must be a text")
    return _clean(value)


def text_or_none(answer: Mapping[str, Any], key: str) -> str | None:
    """Return a text that can be stored, or None if there is none."""
    return None if answer.get(key) is None else _text(answer, key)


def _name(answer: Mapping[str, Any], key: str) -> str:
    return short(_text(answer, key))


def _name_or_none(answer: Mapping[str, Any], key: str) -> str | None:
    return None if answer.get(key) is None else _name(answer, key)


def word(value: object) -> str:
    """Return a value as text. Large numbers become "?": `str` raises for thousands of digits."""
    return value if isinstance(value, str) else json.dumps(value) if _is_small(value) else "?"


def _is_small(value: object) -> bool:
    return value is None or isinstance(value, (bool, float)) or whole(value) is not None


def _clean(text: str) -> str:
    """Replace NUL and lone surrogates, which are valid in JSON but not in a file or a database."""
    return text if text.isascii() and "\0" not in text else _UNSTORABLE.sub("?", text)


def short(text: str) -> str:
    """Return a name of bounded length that can be stored."""
    return _clean(text[:_NAME_CHARS])


def _shortened(text: str) -> str:
    """Leave out the middle of a message that is too long: the relevant text is at its start or end."""
    if len(text) <= _MESSAGE_CHARS:
        return text
    half = (_MESSAGE_CHARS - len(_LEFT_OUT)) // 2
    return text[:half] + _LEFT_OUT + text[-half:]


def whole(value: object) -> int | None:
    """Return an integer that fits into 64 bits, or None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int) or not -_TOO_MUCH < value < _TOO_MUCH:
        return None
    return value


def number(value: object) -> float | None:
    """Return a finite number, or None for any other value."""
    if isinstance(value, float):
        return value if math.isfinite(value) and abs(value) < _TOO_MUCH else None
    integer = whole(value)
    return None if integer is None else float(integer)


def count(value: object) -> int:
    """Return a count, which must be an integer."""
    if (integer := whole(value)) is None:
        raise MalformedAnswer("a count must be a whole number")
    return integer


def _amounts(value: object) -> dict[str, float]:
    """Return the amounts of a shape or a node, without node markers and parts of placement groups."""
    named = islice(_object(value, "an amount of resources").items(), MAX_NAMES)
    numbers = {short(name): number(amount) for name, amount in named if _is_countable(name)}
    return {name: number for name, number in numbers.items() if number is not None}


def seconds(milliseconds: object) -> float | None:
    """Convert a time of Ray, which is in milliseconds; None if it is not a valid time."""
    timestamp = (number(milliseconds) or 0.0) / 1000
    return timestamp if 0 < timestamp <= _LAST_SECOND else None


# Parses the text of `ray status`: a cluster with autoscaler v2 reports its usage only in this form.
#
#     Total Usage:
#      1.75/3.0 CPU (1.0 used of 1.0 reserved in placement groups)
#      500.00MiB/1.86GiB memory
#
#     From request_resources:
#      (none)
#     Pending Demands:
#      {'CPU': 8.0, 'my_res': 1.0}: 3+ pending tasks/actors
#      {'CPU': 50.0} * 2, {'GPU': 9.0} * 1 (SPREAD): 1+ pending placement groups
#
# Sizes are rounded to two digits in this text; the sums over the nodes are exact.


_AMOUNT = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)(TiB|GiB|MiB|KiB|B)?"
_USAGE_LINE = re.compile(
    rf"{_AMOUNT}/{_AMOUNT} (.+?)(?: \({_AMOUNT} used of {_AMOUNT} reserved in placement groups\))?"
)
_TASKS_LINE = re.compile(
    r"(\{[^{}]*\}): (\d+)\+ pending tasks/actors(?: \((\d+)\+ using placement groups\))?"
)
_GROUPS_LINE = re.compile(r"(.+) \(\w+\): (\d+)\+ pending placement groups")
_BUNDLE = re.compile(r"(\{[^{}]*\}) \* (\d+)")
_SHAPE_ENTRY = re.compile(r"'([^']+)': (\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def parse_usage_text(text: str) -> Usage:
    """Parse the text; the values of a missing block are unknown, not zero."""
    lines = islice(_block(text, "Total Usage:"), MAX_NAMES)
    usage = [match for line in lines if (match := _USAGE_LINE.fullmatch(line))]
    return Usage(
        total={short(match[5]): _value(match[3], match[4]) for match in usage} or None,
        used={short(match[5]): _used(match) for match in usage} or None,
        pending=_pending_text(text),
    )


def _block(text: str, title: str) -> list[str]:
    """Return the indented lines below a title."""
    lines = text.splitlines()
    if title not in lines:
        return []
    below: list[str] = []
    for line in lines[lines.index(title) + 1 :]:
        if not line.startswith(" "):
            break
        below.append(line.strip())
    return below


def _used(match: re.Match[str]) -> float:
    """Return the amount that is not free: a reservation of a placement group counts, used or not."""
    used = _value(match[1], match[2])
    if match[6] is None:
        return used
    return used - _value(match[6], match[7]) + _value(match[8], match[9])


def _value(digits: str, unit: str | None) -> float:
    if (value := number(float(digits) * BYTES[(unit or "B").lower()])) is None:
        raise MalformedAnswer("an amount of resources is not a number")
    return value


def _pending_text(text: str) -> tuple[tuple[Resources, int], ...] | None:
    lines = _block(text, "Pending Demands:")
    if not lines:
        return None
    demands: list[tuple[Resources, int]] = []
    for line in lines[:MAX_DEMANDS]:
        if tasks := _TASKS_LINE.fullmatch(line):
            # Tasks in a placement group wait for resources that their group already holds.
            demands.append((_shape(tasks[1]), int(tasks[2]) - int(tasks[3] or 0)))
        elif groups := _GROUPS_LINE.fullmatch(line):
            bundles = _BUNDLE.findall(groups[1])
            demands += [(_shape(shape), int(times) * int(groups[2])) for shape, times in bundles]
    return tuple((shape, count(times)) for shape, times in demands[:MAX_DEMANDS] if times > 0)


def _shape(text: str) -> dict[str, float]:
    return {short(name): _value(amount, None) for name, amount in _SHAPE_ENTRY.findall(text)}
