"""The filters of the list of jobs. Elements are never built anew, so whoever types keeps the focus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import state_text
from ray_multicluster_scheduler.dashboard.parts.job_list_address import (
    LINKED,
    ROWS,
    TYPED,
    changed,
    is_filtered,
)
from ray_multicluster_scheduler.dashboard.parts.time_range import Range, TimeRange
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.query import JobQuery

#: How long somebody pauses who has finished a word.
DEBOUNCE_MS = 350


class Changed(Protocol):
    """Is told what to show from now on."""

    async def __call__(self, query: JobQuery, *, typed: bool = False) -> None:
        """`typed`: letter by letter, which makes no steps in the browser's history."""


class JobFilters(ui.element):
    """One field for each filter, and a button for each one that only a link can set."""

    def __init__(self, page: Page, clusters: Sequence[str], *, changed: Changed) -> None:
        super().__init__("div")
        self.classes("jobs-filters").props("role=search")
        self._page = page
        self._changed = changed
        self._query = JobQuery()
        self._clusters = list(clusters)
        self._typed: dict[str, ui.input] = {}
        with self:
            self._states = ui.select(
                {state.value: state_text(page, state.value) for state in JobState},
                multiple=True,
                value=[],
                label=page.t("common.state"),
                clearable=True,
                on_change=self._look,
            ).props("dense outlined data-test=filter-state")
            self._states.classes("jobs-wide")
            self._cluster = ui.select(
                self._clusters, label=page.t("common.cluster"), clearable=True, on_change=self._look
            ).props("dense outlined data-test=filter-cluster")
            self._times = TimeRange(page, self._choose_times)
            for name in TYPED:
                if name != "user" or page.visitor.caller.only is None:
                    self._add_typed(page, name)
            self._linked = {name: self._add_linked(page, name) for name in LINKED}
            self._clear = ui.button(icon="filter_alt_off", on_click=self.show_all)
            self._clear.props("flat round dense data-test=clear")
            self._clear.props["aria-label"] = self._clear.props["title"] = page.t("jobs.clear")

    def show(self, query: JobQuery) -> None:
        """Show what the address asks for."""
        self._query = query
        self._states.set_value([state.value for state in query.states or ()])
        if query.cluster is not None and query.cluster not in self._clusters:
            self._clusters.append(query.cluster)
            self._cluster.set_options(self._clusters)
        self._cluster.set_value(query.cluster)
        self._times.show(query.changed_since, query.changed_until)
        for name, field in self._typed.items():
            text = getattr(query, name) or ""
            if str(field.value or "").strip() != text:  # who types a space means to go on
                field.set_value(text)
        for name, button in self._linked.items():
            value = getattr(query, name)
            button.set_visibility(value is not None)
            text = self._page.words.known(f"reasons.{value}", str(value))
            button.set_text(f"{button.props['data-name']}: {text if name == 'wait_reason' else value}")
        self._clear.set_visibility(is_filtered(query))

    async def show_all(self) -> None:
        """Take all filters away."""
        await self._changed(JobQuery(limit=ROWS, heads_only=True))

    async def _choose_times(self, chosen: Range) -> None:
        since, until = chosen
        await self._changed(changed(self._query, changed_since=since, changed_until=until))

    def _add_typed(self, page: Page, name: str) -> None:
        label = page.t("common.user") if name == "user" else page.t(f"jobs.filter_{name}")

        async def typed() -> None:
            await self._look(typed=True)

        field = ui.input(label, on_change=typed).props(f"dense outlined debounce={DEBOUNCE_MS}")
        self._typed[name] = field.props(f"clearable maxlength=200 data-test=filter-{name}")
        if name == "text":
            field.classes("jobs-wide")

    def _add_linked(self, page: Page, name: str) -> ui.button:
        async def remove() -> None:
            await self._changed(changed(self._query, **{name: None}))

        button = ui.button(icon="close", on_click=remove).classes("jobs-linked")
        button.props["data-name"] = page.t(f"jobs.filter_{name}")
        return button.props(f"outline dense no-caps data-test=filter-{name}")

    async def _look(self, *, typed: bool = False) -> None:
        """Tell what the fields ask for; nothing if that is shown already, as after `show`."""
        words = {name: str(field.value or "").strip() or None for name, field in self._typed.items()}
        states = tuple(JobState[word] for word in self._states.value or ()) or None
        asked = changed(self._query, states=states, cluster=self._cluster.value, **words)
        if asked != changed(self._query):
            await self._changed(asked, typed=typed)
