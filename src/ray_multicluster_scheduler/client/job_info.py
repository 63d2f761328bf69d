"""All that is known of a job at one moment: a mapping, whose keys are attributes too."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ray_multicluster_scheduler.text import did_you_mean

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ray_multicluster_scheduler.model.job_options import OnUnreachable


class JobInfo(dict[str, Any]):
    """All that is known of a job, as `get_job_info` returns it: `info["status"]` or `info.status`.

    It is a `dict` for whatever takes one, and is pickled and copied as that; `print` and notebooks show the
    most important of it. Times are seconds since the epoch; those of a `Job` are datetimes.
    """

    __slots__ = ()

    # The fields of `JobDetail`, as they are in JSON.
    submission_id: str
    job_id: str
    state: str
    status: str
    cluster: str | None
    message: str
    user: str
    entrypoint: str
    accepted_at: float
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    tags: list[str]
    preferred_cluster: str | None
    only_cluster: str | None
    only_tags: list[str]
    priority: int
    depends_on: list[str]
    executor: str
    max_retries: int
    timeout_s: float | None
    queue_timeout_s: float | None
    on_unreachable: OnUnreachable
    idempotency_key: str | None
    entrypoint_num_cpus: float | None
    entrypoint_num_gpus: float | None
    entrypoint_memory: int | None
    group: str | None
    parent: str | None
    stop_children: bool
    attempt: int
    remote_id: str | None
    stopping: bool
    runtime_env: dict[str, Any]
    metadata: dict[str, str]
    resource_requirements: dict[str, float]
    entrypoint_resources: dict[str, float]
    entrypoint_label_selector: dict[str, str]
    error_type: str | None
    infra_failures: int
    user_failures: int
    avoid: list[str]
    placed_at: float | None
    end_unreported: bool
    changed_at: float
    not_before: float
    has_log: bool
    repeatable: bool
    warnings: list[str]
    wait_reason: str | None
    waits_for: str | None
    head: str | None
    attempts: list[dict[str, Any]]
    logs: str | None

    if not TYPE_CHECKING:  # a misspelt name is told by type checkers too

        def __getattr__(self, name: str) -> Any:
            try:
                return self[name]
            except KeyError:
                raise AttributeError(f"a job has no {name!r}; {did_you_mean(name, self)}") from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def __str__(self) -> str:
        from ray_multicluster_scheduler.client.display import as_text  # noqa: PLC0415 - imports Rich

        return as_text(self.__rich__())

    def __rich__(self) -> RenderableType:
        from ray_multicluster_scheduler.client.display import job_card  # noqa: PLC0415 - imports Rich

        return job_card(self, time.time())

    def _repr_html_(self) -> str:
        from ray_multicluster_scheduler.client.display import as_html  # noqa: PLC0415 - imports Rich

        return as_html(self.__rich__())

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001 - IPython's protocol
        printer.text(str(self))
