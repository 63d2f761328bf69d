"""The options of a job that are stored and shown as the user gave them, one field for each.

The request, the record and the view of a job inherit these fields. The options of `raymc submit`, the
`raymc.` keys of Ray's metadata and what `raymc info` shows are made from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from ray_multicluster_scheduler.model.execution import DEFAULT_EXECUTOR

OnUnreachable = Literal["wait", "fail"] | float


@dataclass(frozen=True, slots=True)
class About:
    """The description of an option, in one sentence."""

    sentence: str
    #: Its name on command lines and, after `raymc.`, in Ray's metadata; empty: that of the field.
    word: str = ""

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], dict[str, Any]]) -> Any:
        """Put the sentence into the description of the REST interface."""
        return {**handler(core), "description": self.sentence}


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Fields of a job that are checked by their type. They have defaults, because older jobs lack them."""

    tags: Annotated[tuple[str, ...], About("Clusters with the same tags are favoured.")] = ()
    preferred_cluster: Annotated[
        str | None, About("This cluster goes first while it has room.", "cluster")
    ] = None
    only_cluster: Annotated[str | None, About("It runs on this cluster or not at all.")] = None
    only_tags: Annotated[tuple[str, ...], About("It runs only on clusters with all of these tags.")] = ()
    priority: Annotated[int, About("Higher goes first.")] = 0
    depends_on: Annotated[
        tuple[str, ...], About("Submission ids that must succeed before it starts.", "after")
    ] = ()
    executor: Annotated[str, About('What runs it on its cluster; "ray-jobs" is Ray\'s own Jobs API.')] = (
        DEFAULT_EXECUTOR
    )
    #: Infrastructure failures have their own budget.
    max_retries: Annotated[int, About("New attempts after its own program failed.", "retries")] = 0
    timeout_s: Annotated[float | None, About("Longest run of one attempt.", "timeout")] = None
    queue_timeout_s: Annotated[float | None, About("Longest wait for a cluster.", "queue_timeout")] = None
    on_unreachable: Annotated[
        OnUnreachable,
        About("When its cluster falls silent: wait, fail, or seconds until it starts elsewhere."),
    ] = "wait"
    idempotency_key: Annotated[str | None, About("A second submit with this key makes no other job.")] = None
    entrypoint_num_cpus: Annotated[float | None, About("Passed on to Ray for the driver itself.")] = None
    entrypoint_num_gpus: Annotated[float | None, About("Passed on to Ray for the driver itself.")] = None
    entrypoint_memory: Annotated[int | None, About("Bytes; passed on to Ray for the driver itself.")] = None
    group: Annotated[str | None, About("A name that jobs of one batch share.")] = None
    parent: Annotated[str | None, About("The job whose program submits this one, by submission id.")] = None
    stop_children: Annotated[
        bool, About("Whoever stops this job stops what its program has submitted, too.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOption:
    """One field of `JobOptions`, for code that handles every option alike."""

    name: str
    word: str
    about: str
    #: Such as `str | None`.
    kind: Any
    default: Any


def _options() -> tuple[JobOption, ...]:
    hints = get_type_hints(JobOptions, include_extras=True)
    options = []
    for field in fields(JobOptions):
        assert get_origin(hints[field.name]) is Annotated, f"{field.name} does not say what it is"
        kind, about = get_args(hints[field.name])
        word = about.word or field.name
        options.append(
            JobOption(name=field.name, word=word, about=about.sentence, kind=kind, default=field.default)
        )
    return tuple(options)


JOB_OPTIONS = _options()
