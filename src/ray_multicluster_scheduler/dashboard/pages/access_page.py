"""Who may use this server, and what they did: users with their quotas, tokens, the audit trail."""

from __future__ import annotations

import time

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.audit_table import AuditTable
from ray_multicluster_scheduler.dashboard.parts.heading import heading
from ray_multicluster_scheduler.dashboard.parts.token_section import TokenSection
from ray_multicluster_scheduler.dashboard.parts.user_table import UserTable
from ray_multicluster_scheduler.errors import NotAuthenticated, SchedulerError
from ray_multicluster_scheduler.service.caller import Role

#: What is shown here concerns all open jobs, so it is not read at every move of a job.
LEAST_GAP_S = 5.0


async def build(page: Page) -> None:
    """Build the page, and keep it up to date."""
    access = _Access(page)
    await page.follow(access.follow)
    await access.audit.newest()


class _Access:
    """The elements that change."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._read_at = 0.0
        with ui.card():
            heading(page.t("access.users"))
            self._users = UserTable(page)
        with ui.card():
            heading(page.t("access.tokens"))
            self._tokens = TokenSection(page, self.refresh)
        with ui.card():
            heading(page.t("access.audit"))
            self.audit = AuditTable(page)

    async def follow(self) -> None:
        """Read anew now and then."""
        if time.monotonic() - self._read_at >= LEAST_GAP_S and not self._tokens.dialog.secret_is_shown:
            await self._read()

    async def refresh(self) -> None:
        """Read anew: this visitor has changed something, perhaps whether a token is asked for."""
        try:
            await self._read()
        except NotAuthenticated:
            self._page.log_in()
        except SchedulerError as problem:
            self._page.say(str(problem), problem=True)
        else:
            await self.audit.newest()

    async def _read(self) -> None:
        self._read_at = time.monotonic()
        users, tokens = await self._page.ask(
            lambda service: (service.admin.users(), service.admin.list_tokens()), role=Role.ADMIN
        )
        self._users.show(users)
        self._tokens.show(tokens)
