"""The table of jobs: one element for all rows, which the browser builds. It also keeps the address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import state_text
from ray_multicluster_scheduler.dashboard.parts.job_rows import Row, Rows
from ray_multicluster_scheduler.model.decision import REASONS
from ray_multicluster_scheduler.model.states import JobState

_WORDS = (
    "name", "submitted", "waited", "ran", "message", "attempt", "stopping", "jobs", "open", "close", "pick",
    "pick_all", "picked", "stop", "retry", "unpick", "all_of", "loading", "newest", "newer", "older", "pages",
    "exit_code",
)  # fmt: skip
_COMMON = ("state", "cluster", "user")


class JobTable(ui.element, component="job_table.js"):
    """Emits `open` and `close` (of a row), `bulk` (with what is selected), `turn` (a page) and `address`."""

    def __init__(self, page: Page, *, may_pick: bool, with_user: bool) -> None:
        super().__init__()
        words = {word: page.t(f"jobs.{word}") for word in _WORDS}
        words |= {word: page.t(f"common.{word}") for word in _COMMON}
        self._props["words"] = words
        self._props["states"] = {state.value: state_text(page, state.value) for state in JobState}
        self._props["reasons"] = {reason: page.t(f"reasons.{reason}") for reason in REASONS}
        self._props["mayPick"] = may_pick
        self._props["withUser"] = with_user
        self._shown: tuple[object, ...] = ()
        self.show(Rows(rows=()), {}, place="", newer=False)

    def show(self, rows: Rows, members: Mapping[str, Rows], *, place: str, newer: bool) -> None:
        """Show rows, and under open ones their jobs. What is selected stays so while `place` is the same."""
        shown = (rows, members, place, newer)
        if shown == self._shown:
            return
        self._shown = shown
        self._props["rows"] = rows.rows
        self._props["members"] = {head: _inner(each) for head, each in members.items()}
        self._props["place"] = place
        self._props["newer"] = newer
        self._props["older"] = rows.next_cursor is not None
        self.update()

    def go(self, address: str, *, replace: bool) -> None:
        """Let the browser show this address, as a new step of its history or instead of the last one."""
        self.run_method("go", address, replace)

    def unpick(self) -> None:
        """Select nothing any more."""
        self.run_method("unpick")


def _inner(rows: Rows) -> dict[str, Sequence[Row] | Any]:
    return {"rows": rows.rows, "more": rows.next_cursor is not None}
