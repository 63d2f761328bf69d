"""From what a caller asked for to a checked `JobSpec`: everything that can be refused is refused here."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from ray_multicluster_scheduler.errors import InvalidEntrypoint, InvalidRequest, InvalidRuntimeEnv
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.job import SUBMISSION_ID, JobSpec, OnUnreachable
from ray_multicluster_scheduler.model.resources import parse_requirements
from ray_multicluster_scheduler.packages.runtime_env import localise
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.policy.paths import relative_script
from ray_multicluster_scheduler.policy.views import unfit_clusters

#: Ray refuses a larger specification.
MAX_ENTRYPOINT_CHARS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job as the caller asked for it; the names are those of `submit_job`."""

    entrypoint: str
    user: str
    runtime_env: Mapping[str, Any] | None = None
    job_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    submission_id: str | None = None
    preferred_cluster: str | None = None
    resource_requirements: Mapping[str, float] | None = None
    tags: Sequence[str] | None = None
    priority: int = 0
    depends_on: Sequence[str] = ()
    max_retries: int = 0
    timeout_s: float | None = None
    queue_timeout_s: float | None = None
    on_unreachable: OnUnreachable = "wait"
    idempotency_key: str | None = None
    entrypoint_num_cpus: float | None = None
    entrypoint_num_gpus: float | None = None
    entrypoint_memory: int | None = None
    entrypoint_resources: Mapping[str, float] | None = None
    group: str | None = None
    #: Where relative paths of `working_dir` start.
    cwd: Path = field(default_factory=Path.cwd)


def checked(
    request: JobRequest, *, clusters: Sequence[ClusterSpec], packages: PackageStore
) -> tuple[str, JobSpec]:
    """Return submission id and spec, with local directories packed; raises `InvalidRequest` kinds."""
    _check_entrypoint(request)
    submission_id = _submission_id(request.submission_id)
    spec = JobSpec(
        entrypoint=request.entrypoint,
        user=_word("user", request.user),
        name=request.job_id or f"job_{uuid.uuid4().hex}",
        runtime_env=localise(request.runtime_env or {}, packages, cwd=request.cwd),
        metadata=_metadata(request.metadata),
        tags=_words("tags", request.tags or ()),
        preferred_cluster=request.preferred_cluster,
        requirements=parse_requirements(request.resource_requirements),
        entrypoint_num_cpus=_amount("entrypoint_num_cpus", request.entrypoint_num_cpus),
        entrypoint_num_gpus=_amount("entrypoint_num_gpus", request.entrypoint_num_gpus),
        entrypoint_memory=_bytes(request.entrypoint_memory),
        entrypoint_resources=parse_requirements(request.entrypoint_resources),
        priority=_integer("priority", request.priority),
        depends_on=_words("depends_on", request.depends_on),
        max_retries=_integer("max_retries", request.max_retries, least=0),
        timeout_s=_seconds("timeout_s", request.timeout_s),
        queue_timeout_s=_seconds("queue_timeout_s", request.queue_timeout_s),
        on_unreachable=_on_unreachable(request.on_unreachable),
        idempotency_key=request.idempotency_key,
        group=request.group,
    )
    _check_can_be_sent(spec)
    unfit = unfit_clusters(spec, clusters)
    if len(unfit) == len(clusters):
        raise InvalidRuntimeEnv(
            "no cluster can take this environment:\n" + "\n".join(why for _, why in unfit)
        )
    return submission_id, spec


def _check_entrypoint(request: JobRequest) -> None:
    entrypoint = request.entrypoint
    if not isinstance(entrypoint, str) or not entrypoint.strip():
        raise InvalidEntrypoint("the entrypoint is empty; write a command such as 'python /home/me/train.py'")
    if "\0" in entrypoint or len(entrypoint) > MAX_ENTRYPOINT_CHARS:
        raise InvalidEntrypoint("the entrypoint is too long or holds a NUL character; put it into a script")
    if (request.runtime_env or {}).get("working_dir"):
        return
    if word := relative_script(entrypoint):
        right = entrypoint.replace(word, str((request.cwd / word).resolve()), 1)
        raise InvalidEntrypoint(
            f"{word!r} in the entrypoint is a relative path, and no cluster knows where it starts; write "
            f"{right!r}, or give the job a runtime_env with a working_dir"
        )


def _check_can_be_sent(spec: JobSpec) -> None:
    """Refuse what neither the store nor a cluster can hold, above all bytes that are not UTF-8."""
    for each in fields(spec):
        try:
            to_json(getattr(spec, each.name))
        except PydanticSerializationError as error:
            argument = {"name": "job_id", "requirements": "resource_requirements"}.get(each.name, each.name)
            raise InvalidRequest(
                f"{argument} holds something that cannot be sent to a cluster; it must be valid Unicode text "
                f"and plain values ({str(error).removeprefix('Error serializing to JSON: ')})"
            ) from None


def _submission_id(given: str | None) -> str:
    if given is None:
        return f"sub_{uuid.uuid4().hex}"
    if not isinstance(given, str) or not SUBMISSION_ID.fullmatch(given):
        raise InvalidRequest(
            f"submission_id {given!r} must be 1 to 128 letters, digits, '_', '.', '-', beginning with a "
            "letter, a digit or '_': other ids leave a job on a Ray cluster that cannot be deleted"
        )
    return given


def _metadata(given: Mapping[str, Any] | None) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidRequest(f"metadata must be a mapping of text, not {type(given).__name__}")
    if reserved := [key for key in given if str(key).startswith("raymc.")]:
        raise InvalidRequest(f"metadata keys that begin with 'raymc.' are ours; rename {reserved[0]!r}")
    return {str(key): str(value) for key, value in given.items()}


def _words(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(word, str) and word for word in given):
        raise InvalidRequest(f"{name} must be a list of words, not {given!r}")
    return tuple(dict.fromkeys(given))


def _word(name: str, given: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InvalidRequest(f"{name} must be a word, not {given!r}")
    return given


def _integer(name: str, given: int, *, least: int | None = None) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or (least is not None and given < least):
        wanted = "a whole number" if least is None else f"a whole number from {least}"
        raise InvalidRequest(f"{name} must be {wanted}, not {given!r}")
    return given


def _number(name: str, given: float) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given):
        raise InvalidRequest(f"{name} must be a number, not {given!r}")
    return float(given)


def _amount(name: str, given: float | None) -> float | None:
    if given is None:
        return None
    if (amount := _number(name, given)) < 0:
        raise InvalidRequest(f"{name} must not be negative, it is {given}")
    return amount


def _bytes(given: int | None) -> int | None:
    return None if given is None else _integer("entrypoint_memory (bytes)", given, least=0)


def _seconds(name: str, given: float | None) -> float | None:
    if given is None:
        return None
    if (seconds := _number(name, given)) <= 0:
        raise InvalidRequest(f"{name} must be more than 0 seconds, it is {given}")
    return seconds


def _on_unreachable(given: OnUnreachable) -> OnUnreachable:
    if given in {"wait", "fail"}:
        return given
    if isinstance(given, str):
        raise InvalidRequest(
            "on_unreachable must be 'wait', 'fail' or the seconds after which it is started elsewhere, "
            f"not {given!r}"
        )
    seconds = _seconds("on_unreachable", given)
    assert seconds is not None
    return seconds
