"""Asks whose token it is to be, makes it, and shows its secret this once."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page, Refresh
from ray_multicluster_scheduler.dashboard.parts.copy_block import CopyBlock
from ray_multicluster_scheduler.dashboard.parts.heading import heading
from ray_multicluster_scheduler.service.admin_views import NewTokenView
from ray_multicluster_scheduler.service.caller import Role

DAY_S = 86_400
#: For how many days a token may be valid; 0: for ever.
DAYS = (1, 7, 30, 90, 365, 0)
USUAL_DAYS = 90


class NewTokenDialog:
    """Two dialogs, one after the other: what is wanted, and what was made."""

    def __init__(self, page: Page, changed: Refresh) -> None:
        self._page = page
        self._changed = changed
        #: Nothing else happens on the page while a secret is shown: it could not be shown again.
        self.secret_is_shown = False

    async def ask(self) -> None:
        """Ask, make the token, and show it."""
        page = self._page
        first = page.visitor.caller.token_id is None
        with page.client.content, ui.dialog() as dialog, ui.card():
            dialog.props["aria-label"] = page.t("access.new_token")
            heading(page.t("access.new_token"))
            if first:
                ui.label(page.t("access.first_token")).classes("notice").style("margin: 0")
            user = ui.input(page.t("access.user"), value=page.visitor.caller.user if first else "")
            user.props("outlined dense autofocus data-test=token-user").classes("full-width")
            roles = {role.word: page.t(f"access.role_{role.word}") for role in Role}
            role = ui.select(
                roles, label=page.t("access.role"), value=Role.ADMIN.word if first else Role.SUBMIT.word
            )
            role.props("outlined dense data-test=token-role").classes("full-width")
            days = {each: _validity(page, each) for each in DAYS}
            valid = ui.select(days, label=page.t("access.valid_for"), value=USUAL_DAYS)
            valid.props("outlined dense data-test=token-expires").classes("full-width")
            with ui.element("div").classes("line buttons"):
                ui.button(page.t("common.cancel"), on_click=dialog.close).props("flat no-caps")
                make = ui.button(page.t("access.make"), on_click=lambda: dialog.submit("make"))
                make.props("unelevated no-caps data-test=make-token")
        answer = await dialog
        asked = (user.value, role.value, valid.value * DAY_S or None)
        dialog.delete()
        if answer == "make":
            await self._make(*asked)

    async def _make(self, user: str, role: str, expires_s: float | None) -> None:
        self.secret_is_shown = True
        made = await self._page.act(
            Role.ADMIN,
            lambda service: service.admin.create_token(user.strip(), role, expires_s=expires_s),
            done="",
        )
        if made is not None:
            await self._show_secret(made)
        self.secret_is_shown = False
        if made is not None:
            await self._changed()

    async def _show_secret(self, made: NewTokenView) -> None:
        """Show the secret until it is put away; then nothing on this server knows it any more."""
        page = self._page
        with page.client.content, ui.dialog().props("persistent") as dialog, ui.card():
            dialog.props["aria-label"] = page.t("access.made", user=made.user)
            heading(page.t("access.made", user=made.user))
            ui.label(page.t("access.shown_once"))
            CopyBlock(page, page.t("access.secret"), made.token).props("data-test=secret")
            with ui.element("div").classes("line buttons"):
                done = ui.button(page.t("access.put_away"), on_click=lambda: dialog.submit("done"))
                done.props("unelevated no-caps data-test=put-away")
        await dialog
        dialog.delete()


def _validity(page: Page, days: int) -> str:
    if not days:
        return page.t("access.for_ever")
    return page.t("access.one_day") if days == 1 else page.t("access.days", days=days)
