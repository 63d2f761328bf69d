"""One open page: its visitor, its language, and how it reads, acts and follows what happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from anyio import to_thread
from nicegui import Client, ui

from ray_multicluster_scheduler.config.load import ConfigChange
from ray_multicluster_scheduler.dashboard.addresses import LOGIN
from ray_multicluster_scheduler.dashboard.live import Live
from ray_multicluster_scheduler.dashboard.words import Words
from ray_multicluster_scheduler.errors import NotAuthenticated, SchedulerError
from ray_multicluster_scheduler.service.auth import Callers
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.service import LocalService

# Who looks at a page. Every read and every action asks anew whether that visitor may still do it.


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """The caller behind an open page, and what was shown to prove it."""

    caller: Caller
    #: As an `Authorization` header has it; empty on a server that asks for no token.
    shown: str
    callers: Callers
    service_for: Callable[[Caller], LocalService]

    def may(self, role: Role) -> bool:
        """Tell whether a button for this is worth showing. The service asks again when it is pressed."""
        return self.caller.may(role)

    async def now(self) -> Caller:
        """Return the caller as the token says it now."""
        caller = await self.callers.identify_again(self.shown, self.caller.address)
        if caller is None:
            raise NotAuthenticated("this token is not valid any more; log in with another one")
        return caller

    async def ask(self, question: Callable[[LocalService], T], *, role: Role = Role.READ) -> T:
        """Call the service in a thread, in the name of the visitor as the token says it now.

        `role` is what the question needs: the service trusts whoever calls it with that.
        """
        caller = await self.now()
        caller.check(role)
        return await to_thread.run_sync(partial(question, self.service_for(caller)))


#: How long a sentence is shown: what went wrong takes longer to read.
PROBLEM_MS, DONE_MS = 15_000, 4_000

Refresh = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """One page: where it is, what it is called, who may see it, and what builds it."""

    path: str
    title: str
    build: Callable[[Page], Awaitable[None]]
    role: Role = Role.READ
    #: In the menu; None: other pages lead to it.
    icon: str | None = None


@dataclass(kw_only=True)
class Page:
    """What the modules in `pages/` build with."""

    visitor: Visitor
    words: Words
    live: Live
    client: Client
    #: Reads the configuration again in the name of a caller, who must be an admin: call it in `act`.
    reload: Callable[[Caller], ConfigChange]
    #: From the address: `{submission_id}` of its path, and what stands behind the question mark.
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    #: Says why the page shows no news at the moment.
    banner: ui.label | None = None
    #: The line at the top, and the title in it.
    head: ui.element | None = None
    title: ui.label | None = None
    _refreshing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def t(self, key: str, /, **values: object) -> str:
        """Return a text of the catalogue in the visitor's language."""
        return self.words(key, **values)

    async def read(self, key: Hashable, question: Callable[[LocalService], T]) -> T:
        """Ask the service; pages of visitors who see the same share the answer. `key` names the question."""
        caller = await self.visitor.now()  # an answer that is there already is for those who may have it
        return await self.live.shared((caller.only, key), lambda: self.visitor.ask(question))

    async def ask(self, question: Callable[[LocalService], T], *, role: Role = Role.READ) -> T:
        """Ask the service something that is of interest to this page alone."""
        return await self.visitor.ask(question, role=role)

    async def act(self, role: Role, action: Callable[[LocalService], T], *, done: str) -> T | None:
        """Change something, and say that it is done, or why not (None)."""
        try:
            result = await self.visitor.ask(action, role=role)
        except NotAuthenticated:
            self.log_in()
            return None
        except SchedulerError as problem:
            self.say(str(problem), problem=True)
            return None
        self.live.forget_answers()
        if done:
            self.say(done)
        return result

    def say(self, text: str, *, problem: bool = False) -> None:
        """Show a sentence for a few seconds at the top, where it lies over no button of a page."""
        # Not `close_button`: its word has the colour of links, which cannot be read on red.
        close = {"label": self.t("common.close"), "color": "white", "noCaps": True}
        with self.client:
            ui.notify(
                text,
                type="negative" if problem else "positive",
                position="top",
                multi_line=True,
                timeout=PROBLEM_MS if problem else DONE_MS,
                actions=[close] if problem else [],
            )

    def set_title(self, text: str) -> None:
        """Call the page by the name of what it shows, here and in the browser's tab."""
        self.client.page.title = f"{text} · raymc"
        if self.title is not None:
            self.title.set_text(text)

    def log_in(self) -> None:
        """Leave for the page that asks for a token."""
        with self.client:
            ui.navigate.to(LOGIN)

    async def follow(self, refresh: Refresh) -> None:
        """Refresh now, and whenever something has happened, until the page is closed."""
        await refresh()

        async def again() -> None:
            if self.client.has_socket_connection:
                await self._refresh(refresh)

        end = self.live.listen(again)
        self.client.on_delete(end)

    async def now(self, refresh: Refresh) -> None:
        """Refresh because the visitor has done something; what goes wrong is said as in `follow`."""
        await self._refresh(refresh)

    async def _refresh(self, refresh: Refresh) -> None:
        async with self._refreshing:
            try:
                with self.client:
                    await refresh()
            except NotAuthenticated:
                self.log_in()
            except SchedulerError as problem:
                self._warn(self.t("common.no_news", why=str(problem)))
            else:
                self._warn("")

    def _warn(self, text: str) -> None:
        if self.banner is not None and self.banner.text != text:
            self.banner.set_text(text)
            self.banner.set_visibility(bool(text))
