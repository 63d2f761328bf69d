"""The options of `raymc submit`, each one line of its signature, and their words as fields of a request."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ray_multicluster_scheduler.cli.options.common import gib, plain_seconds, whole_bytes
from ray_multicluster_scheduler.cli.options.completion import complete_clusters, complete_ids
from ray_multicluster_scheduler.errors import InvalidRequest, InvalidRuntimeEnv
from ray_multicluster_scheduler.model import job_options
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS, JobOption
from ray_multicluster_scheduler.model.resources import BYTES_FROM, GIB
from ray_multicluster_scheduler.packages.runtime_env import read_yaml
from ray_multicluster_scheduler.text import seconds_of

_RAY, OURS = "As in ray job submit", "Scheduling"


def _ours(help_text: str, **more: Any) -> Any:
    return typer.Option(help=help_text, rich_help_panel=OURS, **more)


def _rays(help_text: str, **more: Any) -> Any:
    return typer.Option(help=help_text, rich_help_panel=_RAY, **more)


Command = Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run.")]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Return once it is accepted; stdout gets the id, or the group's.")
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Show where it would go and with what, or the refusal; nothing is sent."),
]
Array = Annotated[
    str | None,
    typer.Option(
        metavar="INDICES",
        help="One job per index: 0-199, 0-9,20 or 0-100:10. {i} in the command is the index, and so is "
        "RAY_MULTICLUSTER_ARRAY_INDEX in its environment.",
    ),
]
SubmitJson = Annotated[bool, typer.Option("--json", help="With --no-wait or --dry-run: JSON for programs.")]

Cluster = Annotated[
    str | None,
    _ours(
        "Preferred cluster; another one is used when it has no room now.",
        metavar="NAME",
        autocompletion=complete_clusters,
    ),
]
OnlyCluster = Annotated[
    str | None,
    _ours("Runs on this cluster or not at all.", metavar="NAME", autocompletion=complete_clusters),
]
OnlyTag = Annotated[
    list[str] | None, _ours("Runs only on clusters with this tag; repeatable.", metavar="WORD")
]
Cpus = Annotated[float | None, _ours("CPUs of the whole job; without any claim it counts as one CPU.")]
Gpus = Annotated[float | None, _ours("GPUs of the whole job.")]
Memory = Annotated[
    float | None,
    _ours(
        "Memory of the whole job, such as 512MiB or 4GB; a plain number is in GiB.",
        metavar="SIZE",
        parser=gib,
    ),
]
Tag = Annotated[list[str] | None, _ours("Favours clusters with this tag; repeatable.", metavar="WORD")]
After = Annotated[
    list[str] | None,
    _ours("Starts when this job has succeeded; repeatable.", metavar="ID", autocompletion=complete_ids),
]
OnUnreachable = Annotated[
    str,
    _ours(
        "When its cluster falls silent: wait, fail, or start it elsewhere after this time.",
        metavar="wait|fail|TIME",
    ),
]
Name = Annotated[str | None, _ours("Your own name for the job.", metavar="TEXT")]

Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        "-e",
        metavar="NAME=VALUE",
        help="Environment variable of the job; NAME alone takes its value from here. Repeatable.",
        rich_help_panel=OURS,
    ),
]
WorkingDir = Annotated[str | None, _rays("Directory (or URI) that the command runs in.", metavar="DIR")]
RuntimeEnv = Annotated[Path | None, _rays("YAML file with the runtime_env.", metavar="FILE")]
RuntimeEnvJson = Annotated[str | None, _rays("The runtime_env itself.", metavar="JSON")]
EntrypointCpus = Annotated[float | None, _rays("CPUs of the driver alone.")]
EntrypointGpus = Annotated[float | None, _rays("GPUs of the driver alone.")]
EntrypointMemory = Annotated[
    int | None,
    _rays("Memory of the driver alone; a plain number is in bytes.", metavar="SIZE", parser=whole_bytes),
]
EntrypointResources = Annotated[str | None, _rays("Custom resources of the driver alone.", metavar="JSON")]
EntrypointLabels = Annotated[
    str | None, _rays("Labels of the nodes that the driver may run on.", metavar="JSON")
]
SubmissionId = Annotated[str | None, _rays("The id to use; for an array, the group's.", metavar="ID")]
MetadataJson = Annotated[str | None, _rays("Text that travels with the job.", metavar="JSON")]


# Options of `raymc submit` that are made from the options of a job.


CommandFunction = TypeVar("CommandFunction", bound=Callable[..., None])

#: `raymc submit` has these in a form of its own: repeatable, completed by Tab, or as in `ray job submit`.
SPELLED_OUT = frozenset(
    {
        "preferred_cluster",
        "only_cluster",
        "only_tags",
        "tags",
        "depends_on",
        "on_unreachable",
        "entrypoint_num_cpus",
        "entrypoint_num_gpus",
        "entrypoint_memory",
    }
)
#: It has no option for these, because:
NOT_ON_THE_COMMAND_LINE = {
    "group": "--array gives its jobs one; for single jobs there is the metadata key raymc.group",
    "idempotency_key": "--submission-id does the same for a person",
    "parent": "the job in which the command runs is told by its environment",
}


def with_job_options(command: CommandFunction) -> CommandFunction:
    """Let a command with `**more` take all other options of a job, under the names of their fields."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*own, *map(_parameter, derived_options())]
    )
    return command


def derived_options() -> list[JobOption]:
    """Return the options that need no form of their own."""
    return [each for each in JOB_OPTIONS if each.name not in {*SPELLED_OUT, *NOT_ON_THE_COMMAND_LINE}]


def _parameter(option: JobOption) -> inspect.Parameter:
    kind, metavar, about, parser = option.kind, None, option.about, None
    if kind == tuple[str, ...]:
        kind, metavar = list[str] | None, "WORD"
    elif kind in (str, str | None):
        metavar = "TEXT"
    elif option.name.endswith("_s"):
        metavar, parser = "TIME", plain_seconds
        about = f"{about.removesuffix('.')}, such as 90s, 10m or 1h; a plain number is in seconds."
    flag = f"--{option.word.replace('_', '-')}"
    shown = typer.Option(flag, help=about, rich_help_panel=OURS, metavar=metavar, parser=parser)
    default = None if isinstance(option.default, tuple) else option.default
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown]
    )


def entrypoint_of(words: Sequence[str]) -> str:
    """Return the shell command: one word is a whole command line already, several are quoted and joined."""
    return words[0] if len(words) == 1 else shlex.join(words)


def json_object(option: str, text: str | None) -> dict[str, Any] | None:
    """Parse an option that holds a JSON object; an error does not repeat it, as it may hold secrets."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"{option} is not valid JSON: {error.msg}, at line {error.lineno}, column {error.colno}"
        ) from None
    if not isinstance(value, dict):
        raise InvalidRequest(
            f'{option} must be a JSON object such as \'{{"key": "value"}}\', not {json_kind(value)}'
        )
    return value


def runtime_env_of(file: Path | None, text: str | None, working_dir: str | None) -> Mapping[str, Any] | None:
    """Put together the job's own environment as `ray job submit` does: `--working-dir` takes precedence."""
    if file is not None and text is not None:
        raise InvalidRequest("give the environment once: with --runtime-env or with --runtime-env-json")
    env = _read_yaml(file) if file is not None else json_object("--runtime-env-json", text)
    return env if working_dir is None else {**(env or {}), "working_dir": working_dir}


def env_of(words: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Read `--env NAME=VALUE` and `--env NAME`; an error repeats no word, as it may be a secret."""
    found = {}
    for number, word in enumerate(words, start=1):
        name, has_value, value = word.partition("=")
        if not name or (not has_value and name not in environ):
            raise InvalidRequest(
                f"--env number {number} is not of the form NAME=VALUE, and no variable here has that name"
            )
        found[name] = value if has_value else environ[name]
    return found


def resources_of(cpus: float | None, gpus: float | None, memory_gib: float | None) -> dict[str, float] | None:
    """Return what the whole job claims; None if no option says so."""
    if memory_gib is not None and memory_gib >= BYTES_FROM:
        memory_gib *= GIB  # from here on a request counts bytes
    given = {"CPU": cpus, "GPU": gpus, "memory": memory_gib}
    return {name: amount for name, amount in given.items() if amount is not None} or None


def on_unreachable_of(word: str) -> job_options.OnUnreachable:
    """Read `wait`, `fail` or a length of time; a plain number is in seconds."""
    if word == "wait":
        return "wait"
    if word == "fail":
        return "fail"
    try:
        return seconds_of(word, plain=True)
    except ValueError:
        raise InvalidRequest(
            "--on-unreachable wants wait, fail or the time after which the job is started elsewhere, such as "
            f"10m, not {word!r}"
        ) from None


def json_kind(value: object) -> str:
    """Name what a JSON document is."""
    if value is None:
        return "null"
    return {bool: "true or false", str: "text", list: "a list"}.get(type(value), "a number")


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        value = read_yaml(file)
    except InvalidRuntimeEnv as problem:
        raise InvalidRuntimeEnv(f"--runtime-env: {problem}") from None
    if not isinstance(value, dict):
        raise InvalidRuntimeEnv(f"--runtime-env: {file} must hold a mapping such as `pip: [requests]`")
    return value
