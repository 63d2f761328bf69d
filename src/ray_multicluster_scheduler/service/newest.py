"""The names of the newest jobs for shell completion, read without opening the service."""

from __future__ import annotations

from ray_multicluster_scheduler.store.sqlite.newest_jobs import newest

__all__ = ["newest"]
