"""The names of the newest jobs, for a TAB: nobody waits until the service is open."""

from __future__ import annotations

from ray_multicluster_scheduler.store.sqlite.newest_jobs import newest

__all__ = ["newest"]
