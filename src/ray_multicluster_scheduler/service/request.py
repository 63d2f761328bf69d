"""What a caller asks for (`JobRequest`), and how it becomes a checked `JobSpec`.

Each field is checked where it enters, by its name. What depends on the clusters is checked by `checked`.
"""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticSerializationError, to_json

from ray_multicluster_scheduler.environment.options import ARRAY_INDEX_VAR, with_env_vars
from ray_multicluster_scheduler.environment.paths import relative_script
from ray_multicluster_scheduler.errors import InvalidEntrypoint, InvalidRequest, InvalidRuntimeEnv
from ray_multicluster_scheduler.model.job import SUBMISSION_ID, JobSpec
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS, JobOption, JobOptions, OnUnreachable
from ray_multicluster_scheduler.model.resources import GIB, parse_requirements
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.text import bytes_of, did_you_mean, nearest, seconds_of

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

        Options may come as keys of the metadata as well (`service/request.py`).
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

    @field_validator("user", *_of_kind(str), mode="before")
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
    if "\0" in entrypoint:
        raise InvalidEntrypoint("the entrypoint holds a NUL character, which no command line can; remove it")
    if len(entrypoint) > MAX_ENTRYPOINT_CHARS:
        raise InvalidEntrypoint(
            f"the entrypoint has {len(entrypoint):,} characters, and {MAX_ENTRYPOINT_CHARS:,} is the limit; "
            "put it into a script"
        )
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


# Job arrays: indices such as `0-199` make one group of many jobs.


#: Replaced by the index, in the command and in the name.
PLACEHOLDER = "{i}"
#: More is a slip of the finger: a head starts about one job per second.
MOST_JOBS = 10_000
#: Longer digit strings are not accepted as numbers.
_RANGE = re.compile(r"(\d{1,15})(?:-(\d{1,15})(?::(\d{1,15}))?)?")


def parse_array(text: str) -> list[int]:
    """Return the indices of `0-9,20` or `0-100:10` (every tenth), each once, as they are written."""
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidRequest(f"an array wants indices such as 0-199, 0-9,20 or 0-100:10, not {text!r}")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise InvalidRequest(f"array: {part.strip()!r} holds no index; write the smaller number first")
        indices = range(first, last + 1, step)
        if len(indices) > MOST_JOBS:
            raise InvalidRequest(f"array: {text!r} would be {len(indices)} jobs; {MOST_JOBS} are the most")
        found.update(dict.fromkeys(indices))
    if len(found) > MOST_JOBS:
        raise InvalidRequest(f"array: {text!r} would be {len(found)} jobs; {MOST_JOBS} are the most")
    return list(found)


def array_of(request: JobRequest, indices: Sequence[int]) -> list[JobRequest]:
    """Return one request per index; they share a group, and their ids are the group's and the index.

    The program finds the index in its environment, and in the command where that holds `{i}`.
    """
    group = request.submission_id or f"array_{uuid.uuid4().hex[:12]}"
    return [
        request.replaced(
            entrypoint=request.entrypoint.replace(PLACEHOLDER, str(index)),
            job_id=request.job_id and request.job_id.replace(PLACEHOLDER, str(index)),
            submission_id=f"{group}-{index}",
            group=group,
            runtime_env=with_env_vars(request.runtime_env, {ARRAY_INDEX_VAR: str(index)}),
        )
        for index in indices
    ]


# Our options as keys of a job's metadata: `raymc.priority`, `raymc.cluster`.


PREFIX = "raymc."


@dataclass(frozen=True, slots=True)
class OptionKey:
    """One key: the field of `JobRequest` that it sets, and how its text is read."""

    field: str
    #: Raises ValueError, TypeError or KeyError.
    read: Callable[[str], Any]
    #: The accepted values, for the error message.
    wants: str


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(text)
    return value


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _yes_or_no(text: str) -> bool:
    return {"true": True, "false": False}[text.casefold()]


def _word_or_seconds(text: str) -> str | float:
    return text if text in {"wait", "fail"} else _seconds(text)


def _seconds(text: str) -> float:
    return seconds_of(str(text), plain=True)


def _memory(text: str) -> dict[str, float]:
    """Read a size. A plain number is as everywhere: GiB, or bytes from 2**20."""
    try:
        return {"memory": float(text)}
    except ValueError:
        return {"memory": bytes_of(str(text), plain=GIB) / GIB}


def _amount_of(resource: str) -> OptionKey:
    return OptionKey("resource_requirements", lambda text: {resource: float(text)}, "a number")


#: How the text of an option is read, by its kind, and what is wanted.
_READERS: tuple[tuple[Any, Callable[[str], Any], str], ...] = (
    (str, str, "a text"),
    (str | None, str, "a text"),
    (int, int, "a whole number"),
    (float | None, _seconds, "a time such as 90s, 10m or 1h, or a number of seconds"),
    (bool, _yes_or_no, "true or false"),
    (tuple[str, ...], _words, "words with commas between them"),
    (OnUnreachable, _word_or_seconds, "wait, fail or a time such as 10m"),
)


def _option_key(option: JobOption) -> OptionKey:
    return next(OptionKey(option.name, read, wants) for kind, read, wants in _READERS if kind == option.kind)


#: Every option of a job that Ray's own interface has no place for.
KEYS: Mapping[str, OptionKey] = {
    "raymc.cpus": _amount_of("CPU"),
    "raymc.gpus": _amount_of("GPU"),
    "raymc.memory": OptionKey("resource_requirements", _memory, "a size such as 4GiB, or a number"),
    "raymc.resources": OptionKey("resource_requirements", _json_object, "a JSON object of numbers"),
    "raymc.job_id": OptionKey("job_id", str, "a text"),
    **{
        f"{PREFIX}{option.word}": _option_key(option)
        for option in JOB_OPTIONS
        if not option.name.startswith("entrypoint_")
    },
}


def with_options(
    given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments of a request with those that its metadata carries, and the key of each of these.

    A field that was given beside its key must say the same; `defaults` are what says nothing.
    """
    options, keys = _options(given.get("metadata"))
    merged = dict(given)
    for field, value in options.items():
        beside = given.get(field)
        if beside is None or beside == defaults.get(field):
            merged[field] = value
        elif field == "resource_requirements" and isinstance(beside, Mapping):
            merged[field] = _together(dict(beside), value, keys[field])
        elif not _same(beside, value):
            raise InvalidRequest(f"{field} and the metadata key {keys[field]!r} say different things")
    return merged, keys


def without_keys(metadata: Any, fields: Mapping[str, Any]) -> Any:
    """Return metadata without the keys of these fields, which are about to be replaced."""
    if not isinstance(metadata, Mapping):
        return metadata
    return {key: value for key, value in metadata.items() if key not in KEYS or KEYS[key].field not in fields}


def _options(metadata: Any) -> tuple[dict[str, Any], dict[str, str]]:
    options: dict[str, Any] = {}
    keys: dict[str, str] = {}
    if not isinstance(metadata, Mapping):
        return options, keys
    for key, text in metadata.items():
        if not isinstance(key, str) or not key.startswith(PREFIX):
            continue
        option = _known(key)
        value = _read(key, option, text)
        if option.field in options:
            options[option.field] = _together(options[option.field], value, key)
            keys[option.field] += f", {key}"
        else:
            options[option.field], keys[option.field] = value, key
    return options, keys


def _known(key: str) -> OptionKey:
    if key not in KEYS:
        guess = nearest(key, KEYS)
        hint = f"did you mean {guess!r}?" if guess else f"there are {', '.join(KEYS)}"
        raise InvalidRequest(
            f"metadata keys that begin with {PREFIX!r} are options of ours, and {key!r} is none; {hint}"
        )
    return KEYS[key]


def _read(key: str, option: OptionKey, text: Any) -> Any:
    try:
        return option.read(text)
    except (ValueError, TypeError, KeyError, RecursionError):
        said = ascii(text)[:80]
        raise InvalidRequest(f"the metadata key {key!r} wants {option.wants}, not {said}") from None


def _together(amounts: dict[str, Any], more: Mapping[str, Any], key: str) -> dict[str, Any]:
    for name, amount in more.items():
        if amounts.setdefault(name, amount) != amount:
            raise InvalidRequest(
                f"the metadata key {key!r} gives another amount of {name} than is given beside it"
            )
    return amounts


def _same(beside: Any, value: Any) -> bool:
    return bool(tuple(beside) == value if isinstance(value, tuple) else beside == value)
