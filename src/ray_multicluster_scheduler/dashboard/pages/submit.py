"""A form for a new job, with a dry run before it is submitted."""

from __future__ import annotations

from ray_multicluster_scheduler.dashboard.page import Page


async def build(page: Page) -> None:
    """Build the page, and keep it up to date."""
