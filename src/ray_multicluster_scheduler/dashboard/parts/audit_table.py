"""The audit trail, newest first, page by page."""

from __future__ import annotations

from functools import partial

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import When
from ray_multicluster_scheduler.dashboard.parts.plain_table import PlainTable, Row
from ray_multicluster_scheduler.errors import NotAuthenticated, SchedulerError
from ray_multicluster_scheduler.service.admin_views import AuditView
from ray_multicluster_scheduler.service.caller import Role

PAGE_ENTRIES = 50
COLUMNS = ("when", "user", "did", "to", "outcome", "from_token", "from_address")


class AuditTable:
    """Some entries, with a filter and the way to older ones. It is read when somebody asks for it."""

    def __init__(self, page: Page) -> None:
        self._page = page
        #: Where each page begins that leads to the one that is shown; None: at the newest entry.
        self._cursors: list[str | None] = [None]
        self._next: str | None = None
        with ui.element("div").classes("line centred"):
            self._user = ui.input(page.t("access.only_user"), on_change=self.newest)
            self._user.props("outlined dense clearable debounce=350 data-test=audit-user")
            refresh = ui.button(page.t("access.refresh"), icon="refresh", on_click=self.newest)
            refresh.props("outline no-caps")
        headings = [page.t(f"access.{column}") for column in COLUMNS]
        self._table = PlainTable(headings, empty=page.t("access.no_audit"))
        self._table.classes("roomy").props("tabindex=0 data-test=audit")
        with ui.element("div").classes("jobs-pages"):
            self._newer = ui.button(page.t("access.newer"), icon="chevron_left", on_click=self._back)
            self._older = ui.button(page.t("access.older"), on_click=self._on)
            for button, name in ((self._newer, "newer"), (self._older, "older")):
                button.props(f"flat no-caps data-test=audit-{name}")
            self._older.props("icon-right=chevron_right")

    async def newest(self) -> None:
        """Show the newest entries."""
        self._cursors = [None]
        await self._load()

    async def _on(self) -> None:
        if self._next is not None:
            self._cursors.append(self._next)
            await self._load()

    async def _back(self) -> None:
        if len(self._cursors) > 1:
            self._cursors.pop()
            await self._load()

    async def _load(self) -> None:
        page, cursor, user = self._page, self._cursors[-1], (self._user.value or "").strip() or None
        try:
            found = await page.ask(
                lambda service: service.admin.audit(user=user, limit=PAGE_ENTRIES, cursor=cursor),
                role=Role.ADMIN,
            )
        except NotAuthenticated:
            page.log_in()
        except SchedulerError as problem:
            page.say(str(problem), problem=True)
        else:
            self._next = found.next_cursor
            self._table.show([_row(entry) for entry in found.entries])
            self._newer.set_enabled(len(self._cursors) > 1)
            self._older.set_enabled(found.next_cursor is not None)


def _row(entry: AuditView) -> Row:
    cells = (
        partial(When, entry.at, style="moment"),
        entry.user or "",
        entry.action,
        partial(_target, entry.target),
        entry.outcome,
        entry.token_id or "",
        entry.address or "",
    )
    return entry.id, cells


def _target(text: str) -> None:
    ui.label(text).classes("long-text")
