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
    amount,
    bar,
    duration,
    plain_signs,
    sign,
    used_of,
)
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot, ClusterSpec, Health
from ray_multicluster_scheduler.model.remote import RemoteJob, RemoteStatus
from ray_multicluster_scheduler.model.resources import Resources
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
    #: What our jobs claim there, whatever Ray says of use: no other job gets that room.
    claimed: Resources

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
        "claimed": dict(row.claimed),
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
    """Return the table, one line per cluster if that fits and else more, and the problems below it."""
    plain = plain_signs(console)
    if not console.is_terminal:
        return Group(_plain_table(rows), *_problems(rows, plain=plain))
    table = _table(rows, stacked=False, plain=plain)
    unlimited = console.options.update(max_width=10_000)
    if console.measure(table, options=unlimited).maximum > console.width:
        table = _table(rows, stacked=True, plain=plain)
    return Group(table, *_problems(rows, plain=plain))


def _table(rows: Sequence[Row], *, stacked: bool, plain: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0 if stacked else 1, 0, 0))
    table.add_column("cluster", overflow="fold", min_width=8)
    for heading in ("health", *(heading for heading, _, _ in _RESOURCES)):
        table.add_column(heading, no_wrap=True)
    table.add_column("jobs", justify="right", no_wrap=True)
    table.add_column("Ray/Py" if stacked else "Ray / Python", no_wrap=True)
    if not stacked:
        table.add_column("latency", no_wrap=True)
        table.add_column("tags", no_wrap=True)
    for row in rows:
        table.add_row(*(_stacked_cells(row, plain=plain) if stacked else _cells(row, plain=plain)))
    return table


def _plain_table(rows: Sequence[Row]) -> Table:
    """Return a table for programs: a word without blanks in every column but the last."""
    names = [heading for heading, _, _ in _RESOURCES]
    table = Table("cluster", "health", "drained", *(f"{n}{more}" for n in names for more in ("", "-claimed")))
    for heading in ("jobs", "Ray", "Python", "latency", "tags"):
        table.add_column(heading)
    for row in rows:
        ray, python = (*_versions(row.snapshot), UNKNOWN)[:2]
        drained = "yes" if row.spec.drained else "no"
        cells = [
            Text(row.spec.name),
            _health(row),
            Text(drained),
            *_plain_amounts(row),
            _running(row),
            ray,
            python,
        ]
        table.add_row(*(Text(cell.plain.replace(" ", "")) for cell in (*cells, _latency(row))), _tags(row))
    return table


def _plain_amounts(row: Row) -> list[Text]:
    """Return `used/total` and what is claimed, for each resource."""
    seen, cells = row.snapshot, []
    for _, name, is_bytes in _RESOURCES:
        used, total, claimed = (
            "unknown" if amounts is None else amount(amounts.get(name, 0.0), is_bytes=is_bytes)
            for amounts in (seen.used, seen.total, row.claimed)
        )
        cells += [Text("unknown" if seen.total is None else f"{used}/{total}"), Text(claimed)]
    return cells


def _cells(row: Row, *, plain: bool) -> list[Text]:
    """Return the cells of a wide table: one line."""
    return [
        Text(row.spec.name, style="bold"),
        Text(" ").join([_health(row), *_drained(row)]),
        *(Text(" ").join(amount) for amount in _amounts(row, plain=plain)),
        _running(row),
        Text(" / ").join(_versions(row.snapshot)),
        _latency(row),
        _tags(row),
    ]


def _stacked_cells(row: Row, *, plain: bool) -> list[Text]:
    """Return the cells of a narrow table: the same in several lines, in fewer columns."""
    latency = [] if row.age_s is None else [_latency(row)]
    return [
        Text("\n").join([Text(row.spec.name, style="bold"), *([_tags(row)] if row.spec.tags else [])]),
        Text("\n").join([_health(row), *latency, *_drained(row)]),
        *(Text("\n").join(amount) for amount in _amounts(row, plain=plain)),
        _running(row),
        Text("\n").join(_versions(row.snapshot)),
    ]


def _health(row: Row) -> Text:
    return Text(row.snapshot.health.value.lower(), style=_COLOURS[row.snapshot.health])


def _drained(row: Row) -> list[Text]:
    return [Text("drained", style="yellow")] if row.spec.drained else []


def _tags(row: Row) -> Text:
    return Text(", ".join(row.spec.tags), style="cyan")


def _running(row: Row) -> Text:
    return UNKNOWN if row.running is None else Text(str(row.running))


def _amounts(row: Row, *, plain: bool) -> list[list[Text]]:
    """Return a bar and its numbers for each resource, or the one word that replaces them."""
    if row.snapshot.total is None:
        return [[UNKNOWN] for _ in _RESOURCES]
    return [
        _amount(row, name, row.snapshot.total.get(name, 0.0), is_bytes=is_bytes, plain=plain)
        for _, name, is_bytes in _RESOURCES
    ]


def _amount(row: Row, name: str, total: float, *, is_bytes: bool, plain: bool) -> list[Text]:
    if total <= 0:
        return [NONE]
    used = None if row.snapshot.used is None else row.snapshot.used.get(name, 0.0)
    claimed = row.claimed.get(name, 0.0)
    drawn = UNKNOWN
    if used is not None:
        drawn = bar(used / total, width=BAR_WIDTH, plain=plain, also=claimed / total)
    parts = [drawn, Text(used_of(used, total, is_bytes=is_bytes))]
    return [*parts, Text(f"{amount(claimed, is_bytes=is_bytes)} claimed")] if claimed else parts


def _versions(seen: ClusterSnapshot) -> list[Text]:
    if seen.ray_version is None:
        return [UNKNOWN]
    return [Text(seen.ray_version), UNKNOWN if seen.python_version is None else Text(seen.python_version)]


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
