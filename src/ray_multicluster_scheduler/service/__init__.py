"""The use cases: submit, stop, look, wait, explain, drain. The API, `raymc` and the server all call these."""

from __future__ import annotations

from pathlib import Path


def newest_jobs(directory: Path, *, limit: int) -> list[tuple[str, str, str | None]]:
    """Return the names of the newest jobs for shell completion, read without opening a store."""
    from ray_multicluster_scheduler.store.sqlite import files  # noqa: PLC0415 - few need it

    return files.newest_jobs(directory, limit=limit)
