"""The form for a job: its fields as texts, how they become a `JobRequest`, and what is wrong with each.

Nothing here asks a cluster or the store, so it runs at every keystroke.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ray_multicluster_scheduler.config.document import read_document
from ray_multicluster_scheduler.environment.compose import normalise
from ray_multicluster_scheduler.environment.redact import is_redacted
from ray_multicluster_scheduler.errors import (
    ConfigInvalid,
    DependencyProblem,
    InvalidEntrypoint,
    InvalidRequest,
    InvalidResources,
    InvalidRuntimeEnv,
    NeverFits,
    SchedulerError,
)
from ray_multicluster_scheduler.model.job import own_name
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.service.request import PREFIX, JobRequest, array_of, parse_array
from ray_multicluster_scheduler.service.views import JobView

# Fields of a form as texts: how each is read, and how a value is written so that it is read back the same.
#
# Lists are separated by commas, and pairs stand one per line as NAME=VALUE. What begins with a bracket is
# JSON: that has a place for a comma in a word, and for a value of several lines.


#: Reading YAML is slow, and all pages wait for it. JSON may be as long as an environment.
MOST_YAML_CHARS = 20_000


class TextProblem(ValueError):
    """A text that cannot be read: a key of the catalogue says why. It does not repeat what may be secret."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key)
        self.key = key
        self.values = values


def read_line(text: str) -> str | None:
    """Return the text of a field, or None if it is blank."""
    return text.strip() or None


def read_number(text: str) -> int | float | None:
    """Return a number, a whole one where it is written as such."""
    if not text.strip():
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise TextProblem("submit.not_a_number")


def write_number(value: float | None) -> str:
    """Write a number as a person would: 2, not 2.0."""
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def read_words(text: str) -> list[str]:
    """Return words between commas or lines."""
    if text.lstrip().startswith("["):
        found = _json(text)
        if not isinstance(found, list):
            raise TextProblem("submit.not_a_list")
        return found
    return [word for line in text.splitlines() for part in line.split(",") if (word := part.strip())]


def write_words(words: Iterable[str]) -> str:
    """Write words for `read_words`."""
    words = list(words)
    plain = ", ".join(words)
    return plain if read_back(read_words, plain) == words else json.dumps(words, ensure_ascii=False)


def read_lines(text: str) -> list[str]:
    """Return the lines that hold something."""
    return [line for each in text.splitlines() if (line := each.strip())]


def read_pairs(text: str) -> dict[str, Any]:
    """Return what NAME=VALUE says, line by line; each name once."""
    if text.lstrip().startswith("{"):
        return _object(_json(text))
    pairs: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise TextProblem("submit.not_a_pair", line=number)
        if name.strip() in pairs:
            raise TextProblem("submit.name_twice", name=name.strip())
        pairs[name.strip()] = value.strip()
    return pairs


def write_pairs(pairs: Mapping[str, Any]) -> str:
    """Write pairs for `read_pairs`."""
    plain = "\n".join(f"{name}={value}" for name, value in pairs.items())
    same = read_back(read_pairs, plain) == dict(pairs)
    return plain if same else json.dumps(dict(pairs), ensure_ascii=False, indent=2)


def read_amounts(text: str) -> dict[str, float]:
    """Return amounts by name."""
    found = {}
    for name, value in read_pairs(text).items():
        try:
            amount = read_number(str(value))
        except TextProblem:
            amount = None
        if amount is None:
            raise TextProblem("submit.amount_not_a_number", name=name)
        found[name] = amount
    return found


def write_amounts(amounts: Mapping[str, float]) -> str:
    """Write amounts for `read_amounts`."""
    return write_pairs({name: write_number(amount) for name, amount in amounts.items()})


def read_mapping(text: str) -> dict[str, Any]:
    """Return what YAML or JSON says, read as carefully as clusters.yaml."""
    if not text.strip():
        return {}
    if text.lstrip().startswith("{"):
        try:
            return _object(json.loads(text))
        except ValueError:
            pass  # such as {pip: [requests]}, which is YAML
    if len(text) > MOST_YAML_CHARS:
        raise TextProblem("submit.yaml_too_long", most=MOST_YAML_CHARS)
    try:
        document = read_document(text, Path("runtime_env"))
    except ConfigInvalid as invalid:
        raise InvalidRuntimeEnv("; ".join(invalid.problems)) from None
    if document.problems:
        raise InvalidRuntimeEnv("; ".join(map(str, document.problems)))
    return _object(document.value)


def read_back(read: Any, text: str) -> Any:
    """Return what a text is read as; None: as nothing."""
    try:
        return read(text)
    except TextProblem:
        return None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TextProblem("submit.not_json", line=error.lineno, column=error.colno) from None
    except (ValueError, RecursionError):  # too many digits, too deep
        raise TextProblem("submit.not_json", line=1, column=1) from None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TextProblem("submit.not_a_mapping")
    return value


#: What is wrong, in words of the catalogue or of the service.
Problem = TextProblem | SchedulerError
#: Where a problem is shown that no field is to blame for.
WHOLE = ""
#: The form has fields for parts of these arguments.
AMOUNTS = {"cpus": "CPU", "gpus": "GPU", "memory": "memory"}
ENVIRONMENT = ("env_vars", "pip", "conda")
#: Which field a kind of refusal is about.
_KINDS = (
    (InvalidEntrypoint, "entrypoint"),
    (InvalidRuntimeEnv, "runtime_env"),
    (InvalidResources, "resources"),
    (DependencyProblem, "depends_on"),
)
#: Their texts are the number alone.
_NUMBERS = (
    "timeout_s",
    "queue_timeout_s",
    "entrypoint_num_cpus",
    "entrypoint_num_gpus",
    "entrypoint_memory",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field, by its name in the catalogue and in `Texts`."""

    name: str
    read: Callable[[str], Any]
    #: line, number, area (of plain lines), cluster (a choice), tick
    kind: str = "line"


#: What is typed, by the name of the field.
Texts = Mapping[str, str]


def _tick(given: str) -> bool:
    return given == "true"


def _word_or_seconds(given: str) -> str | float | None:
    """Read wait, fail or a number; the request refuses other words."""
    try:
        return read_number(given)
    except TextProblem:
        return given.strip()


MAIN = (
    FormField(name="entrypoint", read=str.strip, kind="area"),
    FormField(name="job_id", read=read_line),
    FormField(name="priority", read=read_number, kind="number"),
    FormField(name="cpus", read=read_number, kind="number"),
    FormField(name="gpus", read=read_number, kind="number"),
    FormField(name="memory", read=read_number, kind="number"),
    FormField(name="tags", read=read_words),
    FormField(name="preferred_cluster", read=read_line, kind="cluster"),
)
OF_THE_ENVIRONMENT = (
    FormField(name="env_vars", read=read_pairs, kind="area"),
    FormField(name="pip", read=read_lines, kind="area"),
    FormField(name="conda", read=read_line),
    FormField(name="runtime_env", read=read_mapping, kind="area"),
)
MORE = (
    FormField(name="array", read=read_line),
    FormField(name="max_retries", read=read_number, kind="number"),
    FormField(name="depends_on", read=read_words),
    FormField(name="executor", read=read_line),
    FormField(name="only_cluster", read=read_line, kind="cluster"),
    FormField(name="only_tags", read=read_words),
    FormField(name="timeout_s", read=read_number, kind="number"),
    FormField(name="on_unreachable", read=_word_or_seconds),
    FormField(name="queue_timeout_s", read=read_number, kind="number"),
    FormField(name="group", read=read_line),
    FormField(name="stop_children", read=_tick, kind="tick"),
    FormField(name="resources", read=read_amounts, kind="area"),
    FormField(name="metadata", read=read_pairs, kind="area"),
)
OF_THE_DRIVER = (
    FormField(name="entrypoint_num_cpus", read=read_number, kind="number"),
    FormField(name="entrypoint_num_gpus", read=read_number, kind="number"),
    FormField(name="entrypoint_memory", read=read_number, kind="number"),
    FormField(name="entrypoint_resources", read=read_amounts, kind="area"),
    FormField(name="entrypoint_label_selector", read=read_pairs, kind="area"),
)
FIELDS = (*MAIN, *OF_THE_ENVIRONMENT, *MORE, *OF_THE_DRIVER)
#: Arguments of a job that no field fills, because:
NOT_IN_THE_FORM = {
    "user": "it is the visitor",
    "submission_id": "the page makes one, so that no second click makes a second job",
    "idempotency_key": "the submission id does the same",
    "parent": "no job submits this one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What a form says: a request, or what is wrong, by field."""

    problems: Mapping[str, Problem]
    request: JobRequest | None = None
    #: Of an array; None: it is one job.
    indices: Sequence[int] | None = None


def read_form(texts: Texts, *, user: str) -> Filled:
    """Return the job that a form asks for, or every field that is wrong."""
    values: dict[str, Any] = {}
    problems: dict[str, Problem] = {}
    for field in FIELDS:
        try:
            value = field.read(texts.get(field.name, ""))
            if value not in (None, "", [], {}) or field.name == "entrypoint":
                _check_alone(field.name, value, user)
                values[field.name] = value
        except (TextProblem, InvalidRequest) as problem:
            problems[field.name] = problem
    if problems:
        return Filled(problems=problems)
    return _together(values, user)


def field_of(problem: SchedulerError, texts: Texts) -> str:
    """Return the field that a refusal of the service is about, as far as its kind says so."""
    if isinstance(problem, NeverFits):
        asked = [name for name in (*AMOUNTS, "resources") if texts.get(name, "").strip()]
        return asked[0] if len(asked) == 1 else WHOLE
    return next((field for kind, field in _KINDS if isinstance(problem, kind)), WHOLE)


def texts_of(job: JobView) -> dict[str, str]:
    """Return a form that asks for the same job again. Hidden secrets are as they are shown."""
    claim = dict(job.resource_requirements)
    texts = {
        "entrypoint": job.entrypoint,
        "job_id": own_name(job.job_id) or "",
        "cpus": write_number(claim.pop("CPU", None)),
        "gpus": write_number(claim.pop("GPU", None)),
        "memory": write_number(claim.pop("memory") / GIB if "memory" in claim else None),
        "resources": write_amounts(claim),
        "preferred_cluster": job.preferred_cluster or "",
        "only_cluster": job.only_cluster or "",
        "only_tags": write_words(job.only_tags),
        "tags": write_words(job.tags),
        "priority": str(job.priority or ""),
        "depends_on": write_words(job.depends_on),
        "executor": job.executor,
        "max_retries": str(job.max_retries or ""),
        "on_unreachable": _on_unreachable_text(job.on_unreachable),
        "group": job.group or "",
        "stop_children": "true" if job.stop_children else "",
        # Keys of ours repeat options, which have fields of their own.
        "metadata": write_pairs({k: v for k, v in job.metadata.items() if not k.startswith(PREFIX)}),
        "entrypoint_resources": write_amounts(job.entrypoint_resources),
        "entrypoint_label_selector": write_pairs(job.entrypoint_label_selector),
        **_environment_texts(job.runtime_env),
    }
    return {**texts, **{name: write_number(getattr(job, name)) for name in _NUMBERS}}


def _environment_texts(environment: Mapping[str, Any]) -> dict[str, str]:
    """Put what has a field of its own there, and the rest into one text."""
    rest = dict(environment)
    texts = {}
    if isinstance(rest.get("env_vars"), Mapping):
        texts["env_vars"] = write_pairs(rest.pop("env_vars"))
    if isinstance(pip := rest.get("pip"), list) and read_lines("\n".join(map(str, pip))) == pip:
        texts["pip"] = "\n".join(rest.pop("pip"))
    if isinstance(rest.get("conda"), str):
        texts["conda"] = rest.pop("conda")
    if rest:
        texts["runtime_env"] = yaml.safe_dump(rest, sort_keys=False, allow_unicode=True, width=1000)
    return texts


def _check_alone(name: str, value: Any, user: str) -> None:
    """Refuse what is wrong with one field, whatever the others say."""
    if is_redacted(value):
        raise TextProblem("submit.redacted")
    if name == "array":
        parse_array(value)
    elif name in AMOUNTS or name == "resources":
        amounts = {AMOUNTS[name]: value} if name in AMOUNTS else value
        JobRequest(entrypoint="true", user=user, resource_requirements=amounts)
    elif name in ENVIRONMENT or name == "runtime_env":
        normalise({name: value} if name in ENVIRONMENT else value, where="runtime_env")
    else:
        JobRequest(**{"entrypoint": "true", "user": user, name: value})


def _together(values: dict[str, Any], user: str) -> Filled:
    """Return the whole job; conflicts are reported at the field that can resolve them."""
    array = values.pop("array", None)
    amounts = {AMOUNTS[name]: values.pop(name) for name in AMOUNTS if name in values}
    environment = {name: values.pop(name) for name in ENVIRONMENT if name in values}
    try:
        where = "resources"
        amounts = _joined(amounts, values.pop("resources", {}))
        where = "runtime_env"
        environment = _joined(environment, values.pop("runtime_env", {}))
        normalise(environment, where="runtime_env")
        where = WHOLE
        request = JobRequest(
            **values, user=user, resource_requirements=amounts or None, runtime_env=environment or None
        )
        where = "array"
        indices = None if array is None else _indices(request, array)
    except (TextProblem, InvalidRequest) as problem:
        return Filled(problems={where: problem})
    return Filled(problems={}, request=request, indices=indices)


def _indices(request: JobRequest, array: str) -> list[int]:
    indices = parse_array(array)
    array_of(request, indices[:1])
    if request.group is not None:
        raise TextProblem("submit.array_has_a_group")
    return indices


def _joined(of_fields: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Put together what has fields of its own and what is written out besides. Nothing is said twice."""
    if twice := of_fields.keys() & written.keys():
        raise TextProblem("submit.said_twice", name=", ".join(sorted(twice)))
    return {**of_fields, **written}


def _on_unreachable_text(given: str | float) -> str:
    return given if isinstance(given, str) else write_number(given)
