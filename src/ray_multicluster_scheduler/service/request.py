"""From what a caller asked for to a checked `JobSpec`: everything that can be refused is refused here."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_json

from ray_multicluster_scheduler.errors import InvalidEntrypoint, InvalidRequest, InvalidRuntimeEnv
from ray_multicluster_scheduler.model.job import SUBMISSION_ID, JobSpec, OnUnreachable
from ray_multicluster_scheduler.model.resources import parse_requirements
from ray_multicluster_scheduler.packages.runtime_env import localise
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.policy.paths import relative_script
from ray_multicluster_scheduler.policy.views import Fits
from ray_multicluster_scheduler.service import arguments

#: Ray refuses a larger specification.
MAX_ENTRYPOINT_CHARS = 500_000
#: Every answer about the job repeats its environment. Files and long lists belong into a package.
MAX_ENVIRONMENT_BYTES = 2**20


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


def checked(request: JobRequest, *, fits: Fits, packages: PackageStore) -> tuple[str, JobSpec]:
    """Return submission id and spec, with local directories packed; raises `InvalidRequest` kinds."""
    _check_entrypoint(request)
    submission_id = _submission_id(request.submission_id)
    spec = JobSpec(
        entrypoint=request.entrypoint,
        user=arguments.text("user", request.user),
        name=arguments.text_or_none("job_id", request.job_id or None) or f"job_{uuid.uuid4().hex}",
        runtime_env=localise(request.runtime_env or {}, packages, cwd=request.cwd),
        metadata=arguments.metadata(request.metadata),
        tags=arguments.words("tags", request.tags or ()),
        preferred_cluster=arguments.text_or_none("preferred_cluster", request.preferred_cluster),
        requirements=_requirements(request.resource_requirements),
        entrypoint_num_cpus=arguments.amount("entrypoint_num_cpus", request.entrypoint_num_cpus),
        entrypoint_num_gpus=arguments.amount("entrypoint_num_gpus", request.entrypoint_num_gpus),
        entrypoint_memory=_bytes(request.entrypoint_memory),
        entrypoint_resources=parse_requirements(request.entrypoint_resources, name="entrypoint_resources"),
        priority=arguments.whole("priority", request.priority),
        depends_on=arguments.words("depends_on", request.depends_on),
        max_retries=arguments.whole("max_retries", request.max_retries, least=0),
        timeout_s=arguments.seconds("timeout_s", request.timeout_s),
        queue_timeout_s=arguments.seconds("queue_timeout_s", request.queue_timeout_s),
        on_unreachable=_on_unreachable(request.on_unreachable),
        idempotency_key=arguments.text_or_none("idempotency_key", request.idempotency_key),
        group=arguments.text_or_none("group", request.group),
    )
    _check_can_be_sent(spec)
    unfit = fits.unfit(spec)
    if len(unfit) == fits.clusters:
        raise InvalidRuntimeEnv(
            "no cluster can take this environment:\n" + "\n".join(why for _, why in unfit)
        )
    return submission_id, spec


def _requirements(given: Mapping[str, float] | None) -> dict[str, float]:
    """Return what the whole job needs. That it needs no CPU is kept: without a word it would get one."""
    parsed = parse_requirements(given, name="resource_requirements")
    return {"CPU": 0.0, **parsed} if given and "CPU" in given else parsed


def _check_entrypoint(request: JobRequest) -> None:
    entrypoint = request.entrypoint
    if isinstance(entrypoint, (list, tuple)) and entrypoint:
        line = shlex.join(map(str, entrypoint))
        raise InvalidEntrypoint(f"the entrypoint must be one line for the shell, not a list; write {line!r}")
    if not isinstance(entrypoint, str) or not entrypoint.strip():
        raise InvalidEntrypoint("the entrypoint is empty; write a command such as 'python /home/me/train.py'")
    if "\0" in entrypoint or len(entrypoint) > MAX_ENTRYPOINT_CHARS:
        raise InvalidEntrypoint("the entrypoint is too long or holds a NUL character; put it into a script")
    env = request.runtime_env
    if isinstance(env, Mapping) and env.get("working_dir"):
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
            size = len(to_json(getattr(spec, each.name)))
        except PydanticSerializationError as error:
            argument = {"name": "job_id", "requirements": "resource_requirements"}.get(each.name, each.name)
            raise InvalidRequest(
                f"{argument} holds something that cannot be sent to a cluster; it must be valid Unicode text "
                f"and plain values ({str(error).removeprefix('Error serializing to JSON: ')})"
            ) from None
        if each.name == "runtime_env" and size > MAX_ENVIRONMENT_BYTES:
            raise InvalidRuntimeEnv(
                f"runtime_env has {size} bytes, and at most {MAX_ENVIRONMENT_BYTES} are taken; "
                "put what is large into a file of the working_dir"
            )


def _submission_id(given: str | None) -> str:
    if given is None:
        return f"sub_{uuid.uuid4().hex}"
    if not isinstance(given, str) or not SUBMISSION_ID.fullmatch(given):
        raise InvalidRequest(
            f"submission_id {arguments.shown(given)} must be 1 to 128 letters, digits, '_', '.', '-', "
            "beginning with a letter, a digit or '_': other ids leave a job on a Ray cluster that cannot be "
            "deleted"
        )
    return given


def _bytes(given: Any) -> int | None:
    return None if given is None else arguments.whole("entrypoint_memory (bytes)", given, least=0)


def _on_unreachable(given: Any) -> OnUnreachable:
    if isinstance(given, str):
        if given in {"wait", "fail"}:
            return cast(OnUnreachable, given)
        raise InvalidRequest(
            "on_unreachable must be 'wait', 'fail' or the seconds after which it is started elsewhere, "
            f"not {arguments.shown(given)}"
        )
    seconds = arguments.seconds("on_unreachable", given)
    assert seconds is not None
    return seconds
