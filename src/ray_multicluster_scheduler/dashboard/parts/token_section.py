"""The tokens: who has which, make one, revoke one. A secret is shown once and kept nowhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page, Refresh
from ray_multicluster_scheduler.dashboard.parts.chips import When
from ray_multicluster_scheduler.dashboard.parts.confirm import confirmed
from ray_multicluster_scheduler.dashboard.parts.new_token import NewTokenDialog
from ray_multicluster_scheduler.dashboard.parts.plain_table import Cell, PlainTable, Row
from ray_multicluster_scheduler.service.admin_views import TokenView
from ray_multicluster_scheduler.service.caller import Role

COLUMNS = ("token", "user", "role", "state", "created", "expires", "used", "action")


def state_of(token: TokenView, *, now: float) -> str:
    """Return whether a token is valid, revoked or expired."""
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "valid"


def in_order(tokens: Sequence[TokenView], *, now: float, all_of_them: bool) -> list[TokenView]:
    """Return the valid ones, newest first, and then perhaps the others."""
    newest = sorted(tokens, key=lambda token: -token.created_at)
    valid = [token for token in newest if state_of(token, now=now) == "valid"]
    return [*valid, *(token for token in newest if all_of_them and token not in valid)]


class TokenSection:
    """A table of tokens with its buttons."""

    def __init__(self, page: Page, changed: Refresh) -> None:
        self._page = page
        self._changed = changed
        self._tokens: Sequence[TokenView] = ()
        self.dialog = NewTokenDialog(page, changed)
        with ui.element("div").classes("line centred"):
            new = ui.button(page.t("access.new_token"), icon="add", on_click=self.dialog.ask)
            new.props("unelevated no-caps data-test=new-token")
            self._all = ui.checkbox(page.t("access.show_all"), on_change=self._show)
        headings = [page.t(f"access.{column}") for column in COLUMNS]
        self._table = PlainTable(headings, empty=page.t("access.no_tokens"))
        self._table.classes("roomy").props("data-test=tokens")

    def show(self, tokens: Sequence[TokenView]) -> None:
        """Show these tokens."""
        self._tokens = tokens
        self._show()

    def _show(self) -> None:
        now = time.time()
        shown = in_order(self._tokens, now=now, all_of_them=self._all.value)
        self._table.show([self._row(token, state_of(token, now=now)) for token in shown])

    def _row(self, token: TokenView, state: str) -> Row:
        page = self._page
        own = token.id == page.visitor.caller.token_id
        cells: list[Cell] = [
            f"{token.id} ({page.t('access.own')})" if own else token.id,
            token.user,
            page.words.known(f"roles.{token.role}", token.role),
            partial(self._chip, state),
            partial(When, token.created_at),
            page.t("access.never_expires")
            if token.expires_at is None
            else partial(When, token.expires_at, style="moment"),
            # To the hour is all that is kept.
            page.t("access.never_used")
            if token.used_at is None
            else partial(When, token.used_at, style="hour"),
            partial(self._revoke_button, token) if state == "valid" else "",
        ]
        return (token, state), cells

    def _chip(self, state: str) -> None:
        label = ui.label(self._page.t(f"access.state_{state}")).classes("state")
        if state == "valid":
            label.classes("state-HEALTHY")

    def _revoke_button(self, token: TokenView) -> None:
        button = ui.button(self._page.t("access.revoke"), on_click=partial(self._revoke, token))
        button.props("outline dense no-caps color=negative data-test=revoke")
        button.props["aria-label"] = f"{self._page.t('access.revoke')}: {token.id}, {token.user}"

    async def _revoke(self, token: TokenView) -> None:
        page = self._page
        own = token.id == page.visitor.caller.token_id
        key = "access.revoke_own_sure" if own else "access.revoke_sure"
        question = page.t(key, token=token.id, user=token.user)
        if not await confirmed(page, question, do=page.t("access.revoke")):
            return
        done = page.t("access.revoked", token=token.id)
        if await page.act(Role.ADMIN, lambda service: service.admin.revoke_token(token.id), done=done):
            if own:
                page.log_in()
            else:
                await self._changed()
