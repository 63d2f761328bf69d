"""What `raymc clusters` shows of each cluster: a table for people, a mapping for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ray_multicluster_scheduler.cli.render import (
    NONE,
    UNKNOWN,
    age,
    bar,
    duration,
    plain_signs,
    sign,
    used_of,
)
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Health
from ray_multicluster_scheduler.model.remote import RemoteJob, RemoteStatus
from ray_multicluster_scheduler.policy.diagnosis import Verdict

BAR_WIDTH = 8
_COLOURS = {Health.HEALTHY: "green", Health.UNHEALTHY: "red", Health.UNKNOWN: "dim"}
#: (heading, Ray's name, measured in bytes)
_RESOURCES = (("CPU", "CPU", False), ("GPU", "GPU", False), ("memory", "memory", True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cluster: what is configured, what was seen, and when that was, in seconds."""

    spec: ClusterSpec
    snapshot: ClusterSnapshot
    jobs: tuple[RemoteJob, ...] | None
    age_s: float | None

    @property
    def running(self) -> int | None:
        """Return how many submissions run there; None when the list was never read."""
        if self.jobs is None:
            return None
        return sum(job.status is RemoteStatus.RUNNING for job in self.jobs)


def as_mapping(row: Row) -> dict[str, Any]:
    """Return everything that is known of one cluster; null is unknown."""
    seen = asdict(row.snapshot)
    if row.snapshot.pending is not None:
        seen["pending"] = [
            {"resources": dict(shape), "count": count} for shape, count in row.snapshot.pending
        ]
    return {
        **seen,
        "age_s": row.age_s,
        "running_jobs": row.running,
        "max_running_jobs": row.spec.max_running_jobs,
        "dashboard": row.spec.dashboard,
        "head_address": row.spec.head_address,
        "tags": list(row.spec.tags),
        "prefer": row.spec.prefer,
        "weight": row.spec.weight,
        "drained": row.spec.drained,
    }


def overview(rows: Sequence[Row], console: Console) -> RenderableType:
    """Return the table, one line per cluster if that fits and else two, and the problems below it."""
    plain = plain_signs(console)
    table = _table(rows, stacked=False, plain=plain)
    unlimited = console.options.update(max_width=10_000)
    if console.measure(table, options=unlimited).maximum > console.width:
        table = _table(rows, stacked=True, plain=plain)
    return Group(table, *_problems(rows, plain=plain))


def _table(rows: Sequence[Row], *, stacked: bool, plain: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2 if not stacked else 1, 0, 0))
    table.add_column("cluster", overflow="fold")
    for heading in ("health", *(heading for heading, _, _ in _RESOURCES)):
        table.add_column(heading, no_wrap=not stacked)
    table.add_column("jobs", justify="right")
    table.add_column("Ray / Python" if not stacked else "Ray/Py", no_wrap=True)
    table.add_column("latency", no_wrap=True)
    if not stacked:
        table.add_column("tags", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, stacked=stacked, plain=plain))
    return table


def _cells(row: Row, *, stacked: bool, plain: bool) -> list[Text]:
    between = "\n" if stacked else " "
    tags = Text(", ".join(row.spec.tags), style="cyan")
    name = Text(row.spec.name, style="bold")
    cells = [
        Text("\n").join([name, tags]) if stacked and row.spec.tags else name,
        _health(row, between),
        *(_resource(row.snapshot, name, between, is_bytes, plain=plain) for _, name, is_bytes in _RESOURCES),
        UNKNOWN if row.running is None else Text(str(row.running)),
        _versions(row.snapshot, "\n" if stacked else " / "),
        _latency(row),
    ]
    return cells if stacked else [*cells, tags]


def _health(row: Row, between: str) -> Text:
    word = Text(row.snapshot.health.value.lower(), style=_COLOURS[row.snapshot.health])
    return Text(between).join([word, Text("drained", style="yellow")]) if row.spec.drained else word


def _resource(seen: ClusterSnapshot, name: str, between: str, is_bytes: bool, *, plain: bool) -> Text:  # noqa: FBT001
    if seen.total is None:
        return UNKNOWN
    total = seen.total.get(name, 0.0)
    if total <= 0:
        return NONE
    used = None if seen.used is None else seen.used.get(name, 0.0)
    drawn = bar(None if used is None else used / total, width=BAR_WIDTH, plain=plain)
    return Text(between).join([drawn, Text(used_of(used, total, is_bytes=is_bytes))])


def _versions(seen: ClusterSnapshot, between: str) -> Text:
    if seen.ray_version is None:
        return UNKNOWN
    python = UNKNOWN if seen.python_version is None else Text(seen.python_version)
    return Text(between).join([Text(seen.ray_version), python])


def _latency(row: Row) -> Text:
    """Return how fast it answered, or, when it no longer does, how old all the values are."""
    if row.snapshot.latency_s is None or row.age_s is None:
        return UNKNOWN
    if row.snapshot.problem is not None:
        return Text(f"{age(row.age_s)} ago", style="yellow")
    return Text(duration(row.snapshot.latency_s))


def _problems(rows: Sequence[Row], *, plain: bool) -> list[Text]:
    return [
        Text.assemble(
            sign(Verdict.NOTE if row.snapshot.health is Health.HEALTHY else Verdict.PROBLEM, plain=plain),
            (f" {row.spec.name}: ", "bold"),
            row.snapshot.problem,
        )
        for row in rows
        if row.snapshot.problem is not None
    ]
