"""Move the times of open jobs when the clock is set, so that no wait and no run seems longer than it is."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Connection, case, select, update

from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.ports import CLOCK_STEP_S
from ray_multicluster_scheduler.store.schema.tables import attempts, jobs, upkeep

_OPEN = jobs.c.state.in_(sorted(state.value for state in JobState if state not in FINAL))
_TIMES = (jobs.c.accepted_at, jobs.c.placed_at, jobs.c.seen_at, jobs.c.started_at, jobs.c.changed_at)
_ATTEMPT_TIMES = (attempts.c.placed_at, attempts.c.started_at)


def settle(tx: Connection, *, boot: str, offset: float, now: float) -> float:
    """Note how the time relates to the uptime of the machine; return by how much open jobs were moved.

    While the machine is up, the difference between two notes is the step by which the clock was set. After a
    restart of the machine the step is unknown. But a time in the future must have been written before the
    clock was set back.
    """
    last_boot, last_offset = tx.execute(select(upkeep.c.clock_boot, upkeep.c.clock_offset)).one()
    tx.execute(update(upkeep).values(clock_boot=boot, clock_offset=offset))
    step = 0.0 if last_boot is None else offset - last_offset
    if abs(step) < CLOCK_STEP_S:
        return 0.0
    if boot != last_boot:
        _bring_back(tx, now=now)
        return 0.0
    _move(tx, step, now=now)
    return step


def _move(tx: Connection, step: float, *, now: float) -> None:
    values: dict[Column[Any], Any] = {column: column + step for column in _TIMES}
    values[jobs.c.not_before] = _delayed(jobs.c.not_before + step)
    # A deadline that would then be over comes from a process that used the new time already.
    deadline = jobs.c.queue_deadline
    values[deadline] = case((deadline + step > now, deadline + step), else_=deadline)
    tx.execute(update(jobs).where(_OPEN).values(values))
    tx.execute(
        update(attempts)
        .where(attempts.c.outcome.is_(None))
        .values({column: column + step for column in _ATTEMPT_TIMES})
    )


def _bring_back(tx: Connection, *, now: float) -> None:
    step = now - jobs.c.changed_at  # different for each job
    values: dict[Column[Any], Any] = {column: case((column > now, now), else_=column) for column in _TIMES}
    values[jobs.c.not_before] = _delayed(jobs.c.not_before + step)
    values[jobs.c.queue_deadline] = jobs.c.queue_deadline + step
    tx.execute(update(jobs).where(_OPEN, jobs.c.changed_at > now).values(values))


def _delayed(value: Any) -> Any:
    return case((jobs.c.not_before > 0, value), else_=jobs.c.not_before)
