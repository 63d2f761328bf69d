"""The same job as a command line and as a program, to be copied."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pprint import pformat
from typing import Any

from ray_multicluster_scheduler.dashboard.parts.form_text import write_number
from ray_multicluster_scheduler.dashboard.parts.job_form import AMOUNTS, NOT_IN_THE_FORM
from ray_multicluster_scheduler.environment.env_vars import ARRAY_INDEX_VAR, with_env_vars
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS, JobOption
from ray_multicluster_scheduler.service.arrays import PLACEHOLDER
from ray_multicluster_scheduler.service.option_keys import PREFIX
from ray_multicluster_scheduler.service.request import JobRequest

#: Longer command lines are written in several lines.
LINE = 80
#: `raymc submit` has no option for these; the metadata carries them.
_AS_METADATA = ("group",)
_FLAGS = {"tags": "--tag", "only_tags": "--only-tag"}
#: What a shell obeys within double quotes.
_ESCAPED = str.maketrans({letter: f"\\{letter}" for letter in '\\"$`'})
#: The command first, then what a job is, then its options.
_OPTIONS = {option.name for option in JOB_OPTIONS}
_ARGUMENTS = sorted(
    JobRequest.model_fields.keys() - NOT_IN_THE_FORM.keys(),
    key=lambda name: (name in _OPTIONS, list(JobRequest.model_fields).index(name)),
)

_PROGRAM = """\
from ray_multicluster_scheduler import submit_job

submission_id = submit_job(
{arguments}
)
"""
_PROGRAM_OF_AN_ARRAY = """\
import uuid

from ray_multicluster_scheduler import submit_jobs

group = f"array_{{uuid.uuid4().hex[:12]}}"
submission_ids = submit_jobs(
    [
        dict(
{arguments}
            submission_id=f"{{group}}-{{i}}",
            group=group,
        )
        for i in {indices}
    ]
)
"""


def as_command(request: JobRequest, array: str | None = None) -> str:
    """Return the `raymc submit` that asks for this job."""
    words = [" ".join(map(_quoted, pair)) for pair in _options(request, array)]
    parts = ["raymc submit", *words, f"-- {_command(request.entrypoint)}"]
    line = " ".join(parts)
    return line if len(line) <= LINE else " \\\n  ".join(parts)


def _command(entrypoint: str) -> str:
    """Return a command as it stands if the command line puts it together again, else as one word."""
    try:
        words = shlex.split(entrypoint)
    except ValueError:  # a quote is missing
        words = []
    return entrypoint if len(words) > 1 and shlex.join(words) == entrypoint else _quoted(entrypoint)


def _quoted(word: str) -> str:
    """Quote a word for a shell as a person would: the other quotes where it holds single ones."""
    if "'" not in word or "!" in word:  # an interactive shell takes ! for its history, in double quotes too
        return shlex.quote(word)
    return '"' + word.translate(_ESCAPED) + '"'


def as_python(request: JobRequest, indices: Sequence[int] | None = None) -> str:
    """Return a program that submits this job."""
    arguments = given(request)
    if indices is None:
        lines = [f"    {name}={_literal(value, 4)}," for name, value in arguments.items()]
        return _PROGRAM.format(arguments="\n".join(lines))
    arguments["runtime_env"] = with_env_vars(request.runtime_env, {ARRAY_INDEX_VAR: PLACEHOLDER})
    lines = [
        f"            {name}={_numbered(_literal(value, 12))}"
        + (f'.replace("{PLACEHOLDER}", str(i)),' if _is_numbered(name, value) else ",")
        for name, value in arguments.items()
    ]
    return _PROGRAM_OF_AN_ARRAY.format(arguments="\n".join(lines), indices=_runs(indices))


def given(request: JobRequest) -> dict[str, Any]:
    """Return the arguments of a request that say something, as `submit_job` takes them."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name in _ARGUMENTS
        if (value := getattr(request, name)) != JobRequest.model_fields[name].default
        and value not in (None, {}, ())
    }


def _options(request: JobRequest, array: str | None) -> Iterator[tuple[str, ...]]:
    """Yield the options, each as one or two words."""
    if request.job_id is not None:
        yield _option("--name", request.job_id)
    if array is not None:
        yield _option("--array", array)
    amounts = dict(request.resource_requirements or {})
    for flag, resource in AMOUNTS.items():
        if resource in amounts:
            yield _option(f"--{flag}", write_number(amounts.pop(resource)))
    for option in JOB_OPTIONS:
        yield from _job_option(option, getattr(request, option.name))
    metadata = dict(request.metadata or {})
    metadata |= {f"{PREFIX}{name}": value for name in _AS_METADATA if (value := getattr(request, name))}
    if amounts:
        metadata[f"{PREFIX}resources"] = json.dumps(amounts, ensure_ascii=False)
    for flag, value in (
        ("--runtime-env-json", request.runtime_env),
        ("--metadata-json", metadata),
        ("--entrypoint-resources", request.entrypoint_resources),
        ("--entrypoint-label-selector", request.entrypoint_label_selector),
    ):
        if value:
            yield _option(flag, json.dumps(value, ensure_ascii=False))


def _job_option(option: JobOption, value: Any) -> Iterator[tuple[str, ...]]:
    if value == option.default or option.name in {*NOT_IN_THE_FORM, *_AS_METADATA}:
        return
    flag = _FLAGS.get(option.name) or f"--{option.word.replace('_', '-')}"
    if value is True:
        yield (flag,)
    elif isinstance(value, tuple):
        yield from (_option(flag, word) for word in value)
    else:
        yield _option(flag, value if isinstance(value, str) else write_number(value))


def _option(flag: str, value: str) -> tuple[str, ...]:
    """A value that looks like an option stays with its own."""
    return (f"{flag}={value}",) if value.startswith("-") else (flag, value)


def _literal(value: Any, indent: int) -> str:
    if isinstance(value, str):
        return repr(value)
    return textwrap.indent(pformat(value, width=100 - indent, sort_dicts=False), " " * indent).lstrip()


def _numbered(literal: str) -> str:
    """Put the index into the variable that tells it, in an environment that was written as a literal."""
    in_mapping, in_list = f"{ARRAY_INDEX_VAR!r}: {PLACEHOLDER!r}", f"'{ARRAY_INDEX_VAR}={PLACEHOLDER}'"
    return literal.replace(in_mapping, f"{ARRAY_INDEX_VAR!r}: str(i)").replace(in_list, f"f{in_list}")


def _is_numbered(name: str, value: Any) -> bool:
    return name in {"entrypoint", "job_id"} and PLACEHOLDER in value


def _runs(indices: Sequence[int]) -> str:
    """Write indices with a range where it is shorter."""
    if len(indices) <= 4:
        return repr(list(indices))
    steps = {after - before for before, after in pairwise(indices)}
    if len(steps) == 1 and (step := steps.pop()) > 0:
        return f"range({indices[0]}, {indices[-1] + 1}{'' if step == 1 else f', {step}'})"
    return textwrap.indent(pformat(list(indices), width=100, compact=True), " " * 8).lstrip()
