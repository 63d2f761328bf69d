"""One job: all that is known of it, why it is where it is, its log, and what may be done about it."""

from __future__ import annotations

from ray_multicluster_scheduler.dashboard.page import Page


async def build(page: Page) -> None:
    """Build the page, and keep it up to date."""
