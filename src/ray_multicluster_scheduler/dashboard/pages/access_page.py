"""Who may use this server, and what they did: users with their quotas, tokens, the audit trail."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from nicegui import ui

from ray_multicluster_scheduler.dashboard.chips import When, amount, resource_name
from ray_multicluster_scheduler.dashboard.dialogs import CopyBlock, confirmed, heading
from ray_multicluster_scheduler.dashboard.job_list_address import address
from ray_multicluster_scheduler.dashboard.page import Page, Refresh
from ray_multicluster_scheduler.dashboard.tables import Cell, PlainTable, Row
from ray_multicluster_scheduler.errors import NotAuthenticated, SchedulerError
from ray_multicluster_scheduler.model.access import AuditEntry, NewToken, Token
from ray_multicluster_scheduler.service.administration import UserView
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import JobQuery

# The audit trail, newest first, page by page.


PAGE_ENTRIES = 50
AUDIT_COLUMNS = ("when", "user", "did", "to", "outcome", "from_token", "from_address")


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
        headings = [page.t(f"access.{column}") for column in AUDIT_COLUMNS]
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


def _row(entry: AuditEntry) -> Row:
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


# Asks whose token it is to be, makes it, and shows its secret this once.


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

    async def _show_secret(self, made: NewToken) -> None:
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


# The tokens: who has which, make one, revoke one. A secret is shown once and kept nowhere.


TOKEN_COLUMNS = ("token", "user", "role", "state", "created", "expires", "used", "action")


def state_of(token: Token, *, now: float) -> str:
    """Return whether a token is valid, revoked or expired."""
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "valid"


def in_order(tokens: Sequence[Token], *, now: float, all_of_them: bool) -> list[Token]:
    """Return the valid ones, newest first, and then perhaps the others."""
    newest = sorted(tokens, key=lambda token: -token.created_at)
    valid = [token for token in newest if state_of(token, now=now) == "valid"]
    return [*valid, *(token for token in newest if all_of_them and token not in valid)]


class TokenSection:
    """A table of tokens with its buttons."""

    def __init__(self, page: Page, changed: Refresh) -> None:
        self._page = page
        self._changed = changed
        self._tokens: Sequence[Token] = ()
        self.dialog = NewTokenDialog(page, changed)
        with ui.element("div").classes("line centred"):
            new = ui.button(page.t("access.new_token"), icon="add", on_click=self.dialog.ask)
            new.props("unelevated no-caps data-test=new-token")
            self._all = ui.checkbox(page.t("access.show_all"), on_change=self._show)
        headings = [page.t(f"access.{column}") for column in TOKEN_COLUMNS]
        self._table = PlainTable(headings, empty=page.t("access.no_tokens"))
        self._table.classes("roomy").props("data-test=tokens")

    def show(self, tokens: Sequence[Token]) -> None:
        """Show these tokens."""
        self._tokens = tokens
        self._show()

    def _show(self) -> None:
        now = time.time()
        shown = in_order(self._tokens, now=now, all_of_them=self._all.value)
        self._table.show([self._row(token, state_of(token, now=now)) for token in shown])

    def _row(self, token: Token, state: str) -> Row:
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

    def _revoke_button(self, token: Token) -> None:
        button = ui.button(self._page.t("access.revoke"), on_click=partial(self._revoke, token))
        button.props("outline dense no-caps color=negative data-test=revoke")
        button.props["aria-label"] = f"{self._page.t('access.revoke')}: {token.id}, {token.user}"

    async def _revoke(self, token: Token) -> None:
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


# The users of a server: their roles, and how much of their quota their open jobs take.


USER_COLUMNS = ("user", "roles", "valid_tokens", "open_jobs", "claimed")
#: In place of the name of a resource.
JOBS = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How much of something a user has, and how much is allowed; None: there is no limit."""

    name: str
    used: float
    most: float | None


def uses(user: UserView) -> tuple[Use, ...]:
    """Return the open jobs, then each resource that is claimed or limited."""
    names = sorted({*user.quota_resources, *(name for name, value in user.claimed.items() if value)})
    claims = (
        Use(name=name, used=user.claimed.get(name, 0.0), most=user.quota_resources.get(name))
        for name in names
    )
    return Use(name=JOBS, used=user.open_jobs, most=user.quota_jobs), *claims


class UserTable:
    """One row for each user."""

    def __init__(self, page: Page) -> None:
        self._page = page
        headings = [page.t(f"access.{column}") for column in USER_COLUMNS]
        self._table = PlainTable(headings, empty=page.t("access.no_users"))
        self._table.classes("roomy").props("data-test=users")

    def show(self, users: Sequence[UserView]) -> None:
        """Show these users."""
        self._table.show([self._row(user) for user in users])

    def _row(self, user: UserView) -> Row:
        page = self._page
        roles = ", ".join(page.words.known(f"roles.{role}", role) for role in user.roles)
        jobs, *claims = uses(user)
        cells = (
            partial(ui.link, user.user, address(JobQuery(user=user.user))),
            roles or page.t("common.none"),
            str(user.tokens),
            partial(self._bars, [jobs]),
            partial(self._bars, claims),
        )
        return user.model_dump_json(), cells

    def _bars(self, shown: Sequence[Use]) -> None:
        if not shown:
            ui.label(self._page.t("common.none")).classes("quiet")
        for use in shown:
            self._bar(use)

    def _bar(self, use: Use) -> None:
        """Show a number, and a bar where there is a limit."""
        page, label = self._page, ""
        if use.name != JOBS:
            label = resource_name(page.words, use.name) + " "
        used = amount(use.name, use.used)
        if use.most is None:
            ui.label(label + page.t("access.without_limit", used=used))
            return
        text = label + page.t("access.of_limit", used=used, most=amount(use.name, use.most))
        ui.label(text)
        share = 100.0 if not use.most else min(100.0, 100 * use.used / use.most)
        with ui.element("div").classes("bar").props("role=img") as bar:
            ui.element("div").classes("bar-used").style(f"width: {share:.1f}%")
        bar.props["aria-label"] = text


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
