"""The form for a job: its fields as texts, how they become a `JobRequest`, and what is wrong with each.

Nothing here asks a cluster or the store, so it runs at every keystroke.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ray_multicluster_scheduler.dashboard.parts import form_text as text
from ray_multicluster_scheduler.dashboard.parts.form_text import TextProblem
from ray_multicluster_scheduler.environment.compose import normalise
from ray_multicluster_scheduler.environment.redact import is_redacted
from ray_multicluster_scheduler.errors import (
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
from ray_multicluster_scheduler.service.arrays import array_of, parse_array
from ray_multicluster_scheduler.service.option_keys import PREFIX
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.views import JobView

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
        return text.read_number(given)
    except TextProblem:
        return given.strip()


MAIN = (
    FormField(name="entrypoint", read=str.strip, kind="area"),
    FormField(name="job_id", read=text.read_line),
    FormField(name="priority", read=text.read_number, kind="number"),
    FormField(name="cpus", read=text.read_number, kind="number"),
    FormField(name="gpus", read=text.read_number, kind="number"),
    FormField(name="memory", read=text.read_number, kind="number"),
    FormField(name="tags", read=text.read_words),
    FormField(name="preferred_cluster", read=text.read_line, kind="cluster"),
)
OF_THE_ENVIRONMENT = (
    FormField(name="env_vars", read=text.read_pairs, kind="area"),
    FormField(name="pip", read=text.read_lines, kind="area"),
    FormField(name="conda", read=text.read_line),
    FormField(name="runtime_env", read=text.read_mapping, kind="area"),
)
MORE = (
    FormField(name="array", read=text.read_line),
    FormField(name="max_retries", read=text.read_number, kind="number"),
    FormField(name="depends_on", read=text.read_words),
    FormField(name="only_cluster", read=text.read_line, kind="cluster"),
    FormField(name="only_tags", read=text.read_words),
    FormField(name="timeout_s", read=text.read_number, kind="number"),
    FormField(name="on_unreachable", read=_word_or_seconds),
    FormField(name="queue_timeout_s", read=text.read_number, kind="number"),
    FormField(name="group", read=text.read_line),
    FormField(name="stop_children", read=_tick, kind="tick"),
    FormField(name="resources", read=text.read_amounts, kind="area"),
    FormField(name="metadata", read=text.read_pairs, kind="area"),
)
OF_THE_DRIVER = (
    FormField(name="entrypoint_num_cpus", read=text.read_number, kind="number"),
    FormField(name="entrypoint_num_gpus", read=text.read_number, kind="number"),
    FormField(name="entrypoint_memory", read=text.read_number, kind="number"),
    FormField(name="entrypoint_resources", read=text.read_amounts, kind="area"),
    FormField(name="entrypoint_label_selector", read=text.read_pairs, kind="area"),
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
        "cpus": text.write_number(claim.pop("CPU", None)),
        "gpus": text.write_number(claim.pop("GPU", None)),
        "memory": text.write_number(claim.pop("memory") / GIB if "memory" in claim else None),
        "resources": text.write_amounts(claim),
        "preferred_cluster": job.preferred_cluster or "",
        "only_cluster": job.only_cluster or "",
        "only_tags": text.write_words(job.only_tags),
        "tags": text.write_words(job.tags),
        "priority": str(job.priority or ""),
        "depends_on": text.write_words(job.depends_on),
        "max_retries": str(job.max_retries or ""),
        "on_unreachable": _on_unreachable_text(job.on_unreachable),
        "group": job.group or "",
        "stop_children": "true" if job.stop_children else "",
        # Keys of ours repeat options, which have fields of their own.
        "metadata": text.write_pairs({k: v for k, v in job.metadata.items() if not k.startswith(PREFIX)}),
        "entrypoint_resources": text.write_amounts(job.entrypoint_resources),
        "entrypoint_label_selector": text.write_pairs(job.entrypoint_label_selector),
        **_environment_texts(job.runtime_env),
    }
    return {**texts, **{name: text.write_number(getattr(job, name)) for name in _NUMBERS}}


def _environment_texts(environment: Mapping[str, Any]) -> dict[str, str]:
    """Put what has a field of its own there, and the rest into one text."""
    rest = dict(environment)
    texts = {}
    if isinstance(rest.get("env_vars"), Mapping):
        texts["env_vars"] = text.write_pairs(rest.pop("env_vars"))
    if isinstance(pip := rest.get("pip"), list) and text.read_lines("\n".join(map(str, pip))) == pip:
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
    """Return the whole job; what does not go together is told at the field that can mend it."""
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
    return given if isinstance(given, str) else text.write_number(given)
