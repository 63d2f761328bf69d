"""How large a store becomes, and how long it takes to copy: `python -m benchmarks.store_size [JOBS]`.

Fills a store on SQLite and one on PostgreSQL with typical jobs that have ended, and writes what a million of
them would take. The figures in docs/deployment.md come from here.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.support.postgres import a_postgres

from ray_multicluster_scheduler.config.store_place import StorePlace
from ray_multicluster_scheduler.core.lifecycle.transitions import move
from ray_multicluster_scheduler.maintenance import Copied, back_up, restore
from ray_multicluster_scheduler.model.job import Job, JobSpec, Transition
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.store import Store, open_at

JOBS = 20_000
BATCH = 200
LOG_BYTES = 2_000
MILLION = 1_000_000
#: What happens to a typical job, with the reason that is written down.
WAY = (
    (JobState.PLACED, "best score of 3 clusters: 1 CPU free, environment is warm"),
    (JobState.SUBMITTED, "Ray has accepted it"),
    (JobState.RUNNING, "its driver runs"),
    (JobState.SUCCEEDED, "Job finished successfully."),
)
ENVIRONMENT = {
    "working_dir": "gcs://_ray_pkg_0123456789abcdef.zip",
    "env_vars": {"EPOCHS": "3", "DATA": "/data/part-00017", "OMP_NUM_THREADS": "1"},
}


def fill(store: Store, jobs: int) -> None:
    """Let typical jobs be accepted, run and end: five events, one attempt and a log each."""
    text = random.Random(0)
    now = time.time()
    lease = store.leases.acquire("benchmark", ttl_s=3600.0, now=now)
    assert lease is not None
    for begin in range(0, jobs, BATCH):
        accepted: Sequence[Job] = store.jobs.add(
            [(f"sub_{number:012x}", _spec(number)) for number in range(begin, begin + BATCH)], now=now
        )
        for state, reason in WAY:
            moves = [_move(job, state, reason) for job in accepted]
            ends = state is JobState.SUCCEEDED
            logs = [(job.submission_id, job.attempt, _log(text)) for job in accepted] if ends else []
            accepted = store.jobs.apply(moves, epoch=lease.epoch, now=now, logs=logs)


def _spec(number: int) -> JobSpec:
    return JobSpec(
        entrypoint=f"python train.py --epochs 3 --part {number}",
        user="ann",
        name="nightly",
        runtime_env=ENVIRONMENT,
        requirements={"CPU": 1.0},
        tags=("nightly",),
    )


def _move(job: Job, state: JobState, reason: str) -> Transition:
    placed = state is JobState.PLACED
    candidates = [{"name": name, "score": 0.731, "factors": {"free": 0.5, "health": 1.0}} for name in "abc"]
    return replace(
        move(job, state, reason, **({"cluster": "a"} if placed else {})),
        attempt_changes=(
            {
                "entrypoint": job.spec.entrypoint,
                "runtime_env": ENVIRONMENT,
                "decision": {"cluster": "a", "reason": reason, "candidates": candidates},
            }
            if placed
            else {}
        ),
    )


def _log(text: random.Random) -> str:
    lines = (f"step {number} loss {text.random():.9f} seen {text.random():.9f}\n" for number in range(60))
    return "".join(lines)[:LOG_BYTES]


def _timed(what: str, copy: Callable[[], Copied]) -> None:
    begun = time.perf_counter()
    rows = copy().rows
    print(f"  {what}: {rows / (time.perf_counter() - begun):,.0f} rows/s")


def report(name: str, place: StorePlace, jobs: int, folder: Path, targets: dict[str, StorePlace]) -> None:
    """Fill one store and write what was measured."""
    with contextlib.closing(open_at(place)) as store:
        fill(store, jobs)
        store.retention.compact(rewrite=False)
        size = store.retention.space().file_bytes
    print(f"{name}: {size / jobs / 1000:.1f} kB a job, {size / jobs * MILLION / 1e9:.1f} GB a million")
    file = folder / f"{name}.db"
    _timed("backup", lambda: back_up(place, file, replace=True, progress=lambda _done, _total: None))
    print(f"  the backup: {file.stat().st_size / jobs * MILLION / 1e9:.1f} GB a million")
    for kind, target in targets.items():
        _timed(f"restore to {kind}", lambda to=target: restore(file, to, progress=lambda _done, _total: None))
        with contextlib.closing(open_at(target)) as restored:
            print(
                f"  restored: {restored.retention.space().file_bytes / jobs * MILLION / 1e9:.1f} GB a million"
            )


def main(jobs: int) -> None:
    """Measure both databases."""
    with tempfile.TemporaryDirectory() as name, a_postgres() as server:
        folder = Path(name)
        report("SQLite", StorePlace(directory=folder / "files"), jobs, folder, {})
        own = folder / "own"
        targets = {
            "SQLite": StorePlace(directory=folder / "restored"),
            "PostgreSQL": StorePlace(directory=own, url=server.url("restored")),
        }
        report("PostgreSQL", StorePlace(directory=own, url=server.url()), jobs, folder, targets)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else JOBS)
