"""What a caller asks for (`JobRequest`), and how it becomes a checked `JobSpec`.

Each field is checked where it enters, by its name. What depends on the clusters is checked by `checked`.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticSerializationError, to_json

from ray_multicluster_scheduler.environment.paths import relative_script
from ray_multicluster_scheduler.errors import InvalidEntrypoint, InvalidRequest, InvalidRuntimeEnv
from ray_multicluster_scheduler.model.job import SUBMISSION_ID, JobSpec
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS, JobOptions, OnUnreachable
from ray_multicluster_scheduler.model.resources import parse_requirements
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.option_keys import with_options, without_keys
from ray_multicluster_scheduler.text.spelling import did_you_mean, nearest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.core.placement.inputs import Fits
    from ray_multicluster_scheduler.model.cluster import ClusterSpec

#: Ray refuses a larger specification.
MAX_ENTRYPOINT_CHARS = 500_000
#: Every answer about the job repeats its environment. Files and long lists belong into a package.
MAX_ENVIRONMENT_BYTES = 2**20

_Environment = Annotated[Any, WithJsonSchema({"type": "object", "default": None})]
_Amounts = Annotated[Any, WithJsonSchema({"type": "object", "additionalProperties": {"type": "number"}})]
_Texts = Annotated[Any, WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}})]


def _of_kind(kind: Any, *, but: str = "") -> tuple[str, ...]:
    """Return the options of one kind, which are checked alike."""
    return tuple(option.name for option in JOB_OPTIONS if option.kind == kind and option.name != but)


class JobRequest(BaseModel, JobOptions):
    """One job as the caller asked for it.

    These are the arguments of `submit_job`, the options of `raymc submit`, the body of the REST interface
    and the `raymc.` keys of Ray's metadata: a new option is a field of `JobOptions`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    entrypoint: str = Field(description="The shell command.")
    user: str = Field(description="Whose job it is, for fair shares; a server puts the caller's name here.")
    runtime_env: _Environment = Field(None, description="The job's own environment, over the cluster's.")
    job_id: str | None = Field(None, description="Your own name for the job; several may have the same one.")
    metadata: _Texts = Field(None, description="Text that travels with the job.")
    submission_id: str | None = Field(None, description="The id to use; one is made by default.")
    resource_requirements: _Amounts = Field(
        None, description="What the whole job needs: CPU, GPU, memory (GiB, or bytes from 2**20), ..."
    )
    entrypoint_resources: _Amounts = Field(None, description="Passed on to Ray for the driver itself.")
    entrypoint_label_selector: _Texts = Field(None, description="Labels of the nodes the driver may run on.")

    def __init__(self, /, **given: Any) -> None:
        """Check every argument; `InvalidRequest` names the first one that is wrong. None is like nothing.

        Options may come as keys of the metadata as well (`service/option_keys.py`).
        """
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        merged, keys = with_options(given, defaults)
        try:
            super().__init__(**{name: value for name, value in merged.items() if value is not None})
        except ValidationError as error:
            raise _refusal(error, keys) from None

    def replaced(self, **changes: Any) -> JobRequest:
        """Return the same request with other values, checked again."""
        given = {**dict(self), "metadata": without_keys(self.metadata, changes)}
        return JobRequest(**{**given, **changes})

    @field_validator("entrypoint", mode="before")
    @classmethod
    def _is_a_command(cls, given: Any) -> Any:
        return _entrypoint(given)

    @field_validator("user", mode="before")
    @classmethod
    def _is_text(cls, given: Any, info: ValidationInfo) -> Any:
        return arguments.text(str(info.field_name), given)

    @field_validator(*_of_kind(str | None, but="parent"), mode="before")
    @classmethod
    def _is_text_or_none(cls, given: Any, info: ValidationInfo) -> Any:
        return arguments.text_or_none(str(info.field_name), given)

    @field_validator("job_id", mode="before")
    @classmethod
    def _is_a_name(cls, given: Any) -> Any:
        return arguments.text_or_none("job_id", given or None)

    @field_validator("submission_id", "parent", mode="before")
    @classmethod
    def _is_an_id(cls, given: Any, info: ValidationInfo) -> Any:
        return None if given is None else _submission_id(str(info.field_name), given)

    @field_validator(*_of_kind(bool), mode="before")
    @classmethod
    def _is_yes_or_no(cls, given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, bool):
            raise InvalidRequest(f"{info.field_name} must be True or False, not {arguments.shown(given)}")
        return given

    @field_validator(*_of_kind(tuple[str, ...]), mode="before")
    @classmethod
    def _are_words(cls, given: Any, info: ValidationInfo) -> Any:
        return arguments.words(str(info.field_name), () if given is None else given)

    @field_validator("metadata", mode="before")
    @classmethod
    def _is_metadata(cls, given: Any) -> Any:
        return arguments.metadata(given)

    @field_validator("resource_requirements", "entrypoint_resources", mode="before")
    @classmethod
    def _are_amounts(cls, given: Any, info: ValidationInfo) -> Any:
        parse_requirements(given, name=str(info.field_name))  # converted only once, by `checked`
        return given

    @field_validator(*_of_kind(float | None), mode="before")
    @classmethod
    def _is_an_amount(cls, given: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        return (arguments.seconds if name.endswith("_s") else arguments.amount)(name, given)

    @field_validator("entrypoint_memory", mode="before")
    @classmethod
    def _is_bytes(cls, given: Any) -> Any:
        return None if given is None else arguments.whole("entrypoint_memory (bytes)", given, least=0)

    @field_validator("entrypoint_label_selector", mode="before")
    @classmethod
    def _is_a_selector(cls, given: Any) -> Any:
        return None if given is None else arguments.label_selector("entrypoint_label_selector", given)

    @field_validator(*_of_kind(int, but="max_retries"), mode="before")
    @classmethod
    def _is_whole(cls, given: Any, info: ValidationInfo) -> Any:
        return arguments.whole(str(info.field_name), given)

    @field_validator("max_retries", mode="before")
    @classmethod
    def _is_a_count(cls, given: Any) -> Any:
        return arguments.whole("max_retries", given, least=0)

    @field_validator("on_unreachable", mode="before")
    @classmethod
    def _is_known(cls, given: Any) -> Any:
        return _on_unreachable(given)


def checked(request: JobRequest, *, fits: Fits) -> tuple[str, JobSpec]:
    """Return submission id and spec. No file of this machine is read: directories are packages by now.

    Raises `InvalidRequest` kinds.
    """
    # A client of a server has the model above without what checks it against the clusters.
    from ray_multicluster_scheduler.environment.compose import normalise  # noqa: PLC0415

    environment = normalise(request.runtime_env, where="runtime_env")
    _check_locations(environment)
    spec = JobSpec(
        entrypoint=request.entrypoint,
        user=request.user,
        name=request.job_id or f"job_{uuid.uuid4().hex}",
        runtime_env=environment,
        metadata=request.metadata or {},
        requirements=_requirements(request.resource_requirements),
        entrypoint_resources=parse_requirements(request.entrypoint_resources, name="entrypoint_resources"),
        entrypoint_label_selector=request.entrypoint_label_selector or {},
        **{option.name: getattr(request, option.name) for option in JOB_OPTIONS},
    )
    _check_can_be_sent(spec)
    allowed = fits.allowed(spec)
    if not allowed and fits.clusters:
        raise InvalidRequest(_allowed_nowhere(spec, fits.clusters))
    unfit = {name: why for name, why in fits.unfit(spec) if name in allowed}
    if len(unfit) == len(allowed):
        raise InvalidRuntimeEnv("no cluster can take this environment:\n" + "\n".join(unfit.values()))
    nowhere = (fits.without_working_dir & allowed) - unfit.keys()
    _check_script(spec, nowhere, clusters=len(allowed))
    return request.submission_id or f"sub_{uuid.uuid4().hex}", spec


def _refusal(error: ValidationError, keys: Mapping[str, str]) -> InvalidRequest:
    """Return the first problem in our own words; what came as a key of the metadata is called by that."""
    problem = error.errors(include_url=False)[0]
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, InvalidRequest):
        key = keys.get(str(problem["loc"][0]))
        return type(cause)(f"the metadata key {key!r}: {cause}") if key else cause
    name = ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        guess = nearest(name, JobRequest.model_fields)
        return InvalidRequest(
            f"a job has no option {name!r}" + (f"; did you mean {guess!r}?" if guess else "")
        )
    if problem["type"] == "missing":
        return InvalidRequest(f"{name} is missing")
    return InvalidRequest(f"{name}: {problem['msg']}")


def _requirements(given: Mapping[str, float] | None) -> dict[str, float]:
    """Return what the whole job needs. That it needs no CPU is kept: without a word it would get one."""
    parsed = parse_requirements(given, name="resource_requirements")
    return {"CPU": 0.0, **parsed} if given and "CPU" in given else parsed


def _entrypoint(entrypoint: Any) -> str:
    if isinstance(entrypoint, (list, tuple)) and entrypoint:
        line = shlex.join(map(str, entrypoint))
        raise InvalidEntrypoint(f"the entrypoint must be one line for the shell, not a list; write {line!r}")
    if callable(entrypoint):
        raise InvalidEntrypoint("the entrypoint is a shell command, not a function; submit_task runs one")
    if not isinstance(entrypoint, str) or not entrypoint.strip():
        raise InvalidEntrypoint("the entrypoint is empty; write a command such as 'python /home/me/train.py'")
    if "\0" in entrypoint or len(entrypoint) > MAX_ENTRYPOINT_CHARS:
        raise InvalidEntrypoint("the entrypoint is too long or holds a NUL character; put it into a script")
    return entrypoint


def _check_locations(environment: Mapping[str, Any]) -> None:
    """Refuse paths that mean something on the caller's machine only: the client packs and replaces them."""
    for option in ("working_dir", "py_modules"):
        value = environment.get(option, ())
        for location in (value,) if isinstance(value, str) else value:
            if "://" not in location:
                raise InvalidRuntimeEnv(
                    f"runtime_env: {option}: {location!r} is a path of the machine that submits; pack and "
                    "upload it there, as submit_job, raymc submit and ray job submit do, or give a URI"
                )


def _allowed_nowhere(spec: JobSpec, clusters: Sequence[ClusterSpec]) -> str:
    """Say which of `only_cluster` and `only_tags` leaves a job no cluster."""
    named = {each.name: each.tags for each in clusters}
    known = {tag for tags in named.values() for tag in tags}
    if spec.only_cluster is not None and spec.only_cluster not in named:
        guess = did_you_mean(spec.only_cluster, named)
        return f"only_cluster: no cluster is named {spec.only_cluster!r}; {guess}"
    if unknown := [tag for tag in spec.only_tags if tag not in known]:
        hint = did_you_mean(unknown[0], known) if known else "give it one in clusters.yaml"
        return f"only_tags: no cluster has the tag {unknown[0]!r}; {hint}"
    tags = ", ".join(map(repr, spec.only_tags))
    which = "no cluster has" if spec.only_cluster is None else f"cluster {spec.only_cluster!r} does not have"
    return f"only_tags: {which} all of the tags {tags}"


def _check_script(spec: JobSpec, nowhere: Set[str], *, clusters: int) -> None:
    """Refuse a relative path if a cluster that may run the job has no directory in which it starts."""
    if not nowhere or spec.runtime_env.get("working_dir") or not (word := relative_script(spec.entrypoint)):
        return
    if len(nowhere) == clusters:
        why = "no cluster knows where it starts"
    else:
        named = ", ".join(map(repr, sorted(nowhere)))
        why = f"{named} {'has' if len(nowhere) == 1 else 'have'} no working_dir in which it could start"
    raise InvalidEntrypoint(
        f"{word!r} in the entrypoint is a relative path, and {why}; give the job a runtime_env with a "
        "working_dir, or write the whole path"
    )


def _check_can_be_sent(spec: JobSpec) -> None:
    """Refuse what neither the store nor a cluster can hold, above all bytes that are not UTF-8."""
    for each in fields(spec):
        argument = {"name": "job_id", "requirements": "resource_requirements"}.get(each.name, each.name)
        sendable(argument, getattr(spec, each.name))


def sendable(name: str, value: object) -> None:
    """Refuse a value that no JSON can hold, and an environment that is too large."""
    try:
        size = len(to_json(value))
    except PydanticSerializationError as error:
        raise InvalidRequest(
            f"{name} holds something that cannot be sent to a cluster; it must be valid Unicode text "
            f"and plain values ({str(error).removeprefix('Error serializing to JSON: ')})"
        ) from None
    if name == "runtime_env" and size > MAX_ENVIRONMENT_BYTES:
        raise InvalidRuntimeEnv(
            f"runtime_env has {size} bytes, and at most {MAX_ENVIRONMENT_BYTES} are taken; "
            "put what is large into a file of the working_dir"
        )


def _submission_id(name: str, given: Any) -> str:
    if not isinstance(given, str) or not SUBMISSION_ID.fullmatch(given):
        raise InvalidRequest(
            f"{name} {arguments.shown(given)} must be 1 to 128 letters, digits, '_', '.', '-', "
            "beginning with a letter, a digit or '_': other ids leave a job on a Ray cluster that cannot be "
            "deleted"
        )
    return given


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
