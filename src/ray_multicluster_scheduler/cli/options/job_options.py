"""Options of `raymc submit` that are made from the options of a job."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from ray_multicluster_scheduler.cli.options.submit import OURS
from ray_multicluster_scheduler.cli.options.units import plain_seconds
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS, JobOption

Command = TypeVar("Command", bound=Callable[..., None])

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


def with_job_options(command: Command) -> Command:
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
    elif kind == str | None:
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
