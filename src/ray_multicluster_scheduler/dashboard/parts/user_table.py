"""The users of a server: their roles, and how much of their quota their open jobs take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.job_list_address import address
from ray_multicluster_scheduler.dashboard.parts.plain_table import PlainTable, Row
from ray_multicluster_scheduler.dashboard.parts.resource_text import amount, resource_name
from ray_multicluster_scheduler.service.admin_views import UserView
from ray_multicluster_scheduler.service.query import JobQuery

COLUMNS = ("user", "roles", "valid_tokens", "open_jobs", "claimed")
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
        headings = [page.t(f"access.{column}") for column in COLUMNS]
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
