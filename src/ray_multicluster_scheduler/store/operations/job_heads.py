"""Rows that stand for several jobs: under which job a list shows another one.

The jobs of a user's group are listed under the first of it, the others of a chain of dependencies under the
first of that. Such a first job, a head, has none itself and belongs to the same user; of a group, it is one
of the group as long as there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, ScalarSelect, bindparam, case, func, null, select, update

from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store.schema.prepared import ForIds, Prepared, chunks
from ray_multicluster_scheduler.store.schema.tables import jobs

_COUNTS = ForIds(
    lambda ids: (
        select(jobs.c.head, jobs.c.state, func.count())
        .where(jobs.c.head.in_(ids))
        .group_by(jobs.c.head, jobs.c.state)
    )
)
_HEIRS = ForIds(
    lambda ids: (
        select(
            jobs.c.head,
            func.coalesce(
                func.min(case((jobs.c.group.is_not(None), jobs.c.seq))),  # only its own group is under a head
                func.min(jobs.c.seq),
            ),
        )
        .where(jobs.c.head.in_(ids))
        .group_by(jobs.c.head)
    )
)
_members = jobs.alias("members")
_heirs = jobs.alias("heirs")
_MOVE_MEMBERS = Prepared(
    update(jobs)
    .where(jobs.c.head == bindparam("removed"))
    .values(
        head=select(_heirs.c.submission_id).where(_heirs.c.seq == bindparam("heir_seq")).scalar_subquery()
    )
)
_BECOME_HEAD = Prepared(
    update(jobs).where(jobs.c.seq == bindparam("heir_seq")).values(head=null(), head_group=jobs.c.group)
)


def heads_of(
    tx: Connection, specs: Mapping[str, JobSpec], known: Mapping[str, tuple[str, str | None]]
) -> dict[str, str]:
    """Return under which job each new one is listed; those that are listed themselves are left out.

    `known` are the dependencies that existed before: (user, head).
    """
    if not any(spec.group is not None or spec.depends_on for spec in specs.values()):
        return {}
    groups = _heads_of_groups(tx, specs)
    for submission_id, spec in specs.items():
        if spec.group is not None:
            groups.setdefault((spec.user, spec.group), submission_id)
    users = {need: user for need, (user, _) in known.items()}
    users.update({submission_id: spec.user for submission_id, spec in specs.items()})
    #: For each job the one that a list shows for it, perhaps itself.
    shown = {need: head or need for need, (_, head) in known.items()}
    shown.update({head: head for head in groups.values()})
    for submission_id in specs:
        way, above = [], submission_id
        while above not in shown:
            way.append(above)
            above = _next_above(above, specs[above], groups, users)
            if above == way[-1]:
                shown[above] = above
        shown.update(dict.fromkeys(way, shown[above]))
    return {each: shown[each] for each in specs if shown[each] != each}


def _heads_of_groups(tx: Connection, specs: Mapping[str, JobSpec]) -> dict[tuple[str, str], str]:
    """Return the heads of those groups of these jobs that exist already, by user and group."""
    groups = sorted({spec.group for spec in specs.values() if spec.group is not None})
    users = sorted({spec.user for spec in specs.values() if spec.group is not None})
    return {
        (user, group): submission_id
        for chunk in chunks(groups)
        for user, group, submission_id in tx.execute(
            select(jobs.c.user, jobs.c.head_group, jobs.c.submission_id).where(
                jobs.c.head_group.in_(chunk), jobs.c.user.in_(users)
            )
        )
    }


def _next_above(
    submission_id: str,
    spec: JobSpec,
    groups: Mapping[tuple[str, str], str],
    users: Mapping[str, str],
) -> str:
    """Return the job with which this one is listed; itself, if with no other one."""
    if spec.group is not None:
        return groups[spec.user, spec.group]
    if spec.depends_on and users[spec.depends_on[0]] == spec.user:
        return spec.depends_on[0]
    return submission_id


def member_counts(tx: Connection, submission_ids: Sequence[str]) -> dict[str, dict[JobState, int]]:
    """Return how many jobs are listed under each of these, by state; those without any are left out."""
    counts: dict[str, dict[JobState, int]] = {}
    for head, state, count in _COUNTS.rows(tx, submission_ids):
        counts.setdefault(head, {})[JobState(state)] = count
    return counts


def has_more_members_than(most: int) -> ScalarSelect[int]:
    """Return an expression that is NULL unless more than `most` are listed under a row of `jobs`."""
    beyond = select(_members.c.seq).where(_members.c.head == jobs.c.submission_id).limit(1).offset(most)
    return beyond.scalar_subquery()


def replace_heads(tx: Connection, removed: Sequence[str]) -> None:
    """Let the oldest of those that were listed under a removed job take its place, its group first.

    This writes each of them. Call it when the removed jobs are gone.
    """
    heirs = [{"removed": head, "heir_seq": seq} for head, seq in _HEIRS.rows(tx, removed)]
    _MOVE_MEMBERS.run(tx, heirs)
    _BECOME_HEAD.run(tx, heirs)
