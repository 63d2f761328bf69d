"""When which job ran on which cluster, and how full the clusters were."""

from __future__ import annotations

from ray_multicluster_scheduler.dashboard.page import Page


async def build(page: Page) -> None:
    """Build the page, and keep it up to date."""
