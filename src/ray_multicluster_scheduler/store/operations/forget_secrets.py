"""Remove the secrets of ended jobs from their rows: from environments, texts and logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, bindparam, select, update

from ray_multicluster_scheduler.environment.redact import redact_env, redact_text, secrets_of
from ray_multicluster_scheduler.store.schema.prepared import Prepared, chunks
from ray_multicluster_scheduler.store.schema.tables import attempts, events, jobs, logs

Row = Mapping[Any, Any]

_WRITE_JOBS = Prepared(update(jobs).where(jobs.c.submission_id == bindparam("of_job")))
_WRITE_ATTEMPTS = Prepared(
    update(attempts).where(
        attempts.c.submission_id == bindparam("of_job"), attempts.c.number == bindparam("of_number")
    )
)
_WRITE_LOGS = Prepared(
    update(logs).where(logs.c.submission_id == bindparam("of_job"), logs.c.attempt == bindparam("of_attempt"))
)
_WRITE_EVENTS = Prepared(update(events).where(events.c.id == bindparam("of_event")))


def forget_secrets(tx: Connection, submission_ids: Sequence[str]) -> int:
    """Remove the secrets of these jobs; return how many jobs had any. Other jobs are not written."""
    return sum(_forget(tx, chunk) for chunk in chunks(submission_ids))


def _forget(tx: Connection, ids: Sequence[str]) -> int:
    attempts_of = _by_job(_rows(tx, attempts, ids))
    with_secrets = [
        row
        for row in _rows(tx, jobs, ids)
        if _has_secrets(row["spec"]["runtime_env"])
        or any(_has_secrets(attempt["runtime_env"]) for attempt in attempts_of.get(row["submission_id"], ()))
    ]
    events_of = (
        _by_job(_rows(tx, events, [row["submission_id"] for row in with_secrets])) if with_secrets else {}
    )
    for row in with_secrets:
        _rewrite(tx, row, attempts_of.get(row["submission_id"], []), events_of.get(row["submission_id"], []))
    return len(with_secrets)


def _rewrite(tx: Connection, job: Row, attempt_rows: Sequence[Row], event_rows: Sequence[Row]) -> None:
    envs = [job["spec"]["runtime_env"], *(attempt["runtime_env"] for attempt in attempt_rows)]
    secrets = tuple(dict.fromkeys(secret for env in envs for secret in secrets_of(env)))

    def clean(text: str | None) -> str | None:
        return None if text is None else redact_text(text, secrets)

    spec = {  # the rest as it is, with fields that this version does not know
        **job["spec"],
        "runtime_env": redact_env(envs[0]),
        "entrypoint": clean(job["spec"]["entrypoint"]),
        "metadata": {name: clean(value) for name, value in job["spec"]["metadata"].items()},
    }
    texts = {name: clean(job[name]) for name in ("reason", "stop_reason")}
    _WRITE_JOBS.run(tx, [{"of_job": job["submission_id"], "spec": spec, **texts}])
    _WRITE_ATTEMPTS.run(
        tx,
        [
            {
                "of_job": attempt["submission_id"],
                "of_number": attempt["number"],
                "runtime_env": redact_env(attempt["runtime_env"]),
                "entrypoint": clean(attempt["entrypoint"]),
                "reason": clean(attempt["reason"]),
            }
            for attempt in attempt_rows
        ],
    )
    for log in _rows(tx, logs, [job["submission_id"]]):
        if (text := clean(log["text"])) != log["text"]:
            _WRITE_LOGS.run(
                tx, [{"of_job": job["submission_id"], "of_attempt": log["attempt"], "text": text}]
            )
    _WRITE_EVENTS.run(
        tx, [{"of_event": event["id"], "reason": clean(event["reason"])} for event in event_rows]
    )


def _has_secrets(env: Mapping[str, Any]) -> bool:
    return bool(env) and redact_env(env) != env


def _rows(tx: Connection, table: Table, ids: Sequence[str]) -> Sequence[Row]:
    return tx.execute(select(table).where(table.c.submission_id.in_(ids))).mappings().all()


def _by_job(rows: Iterable[Row]) -> dict[str, list[Row]]:
    by_job: dict[str, list[Row]] = {}
    for row in rows:
        by_job.setdefault(row["submission_id"], []).append(row)
    return by_job
