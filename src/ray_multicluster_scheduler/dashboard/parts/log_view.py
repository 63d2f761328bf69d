"""The log of a job, which the browser reads and shows (`log_view.js`)."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.views import AttemptView, JobView

#: Words of the component; those of its states are named as these are.
_TEXTS = (
    "log",
    "attempt",
    "all",
    "search",
    "previous",
    "next",
    "nothing_found",
    "follow",
    "wrap",
    "download",
    "dropped",
    "whole",
    "reading",
    "following",
    "ended",
    "ended_empty",
    "one",
    "none",
    "lost",
)


class LogView(ui.element, component="log_view.js", esm={"raymc-log-text": "log_text"}):
    """Follows the log over all attempts, or shows that of one."""

    def __init__(self, page: Page, submission_id: str) -> None:
        super().__init__()
        self._page = page
        self._props["submission-id"] = submission_id
        self._props["texts"] = {name: page.t(f"log.{name}") for name in _TEXTS}
        self._props["attempts"] = []

    def show(self, job: JobView, attempts: Sequence[AttemptView]) -> None:
        """Tell the browser which attempts there are, and why nothing may come now."""
        told = {
            "attempts": [{"number": each.number, "cluster": each.cluster} for each in attempts],
            "ended": job.final,
            "note": self._note(job),
            "blank": self._page.t("log.not_started" if job.started_at is None else "log.no_output"),
        }
        if any(self._props.get(name) != value for name, value in told.items()):
            for name, value in told.items():
                self._props[name] = value
            self.update()

    def _note(self, job: JobView) -> str:
        if job.state is JobState.UNREACHABLE:
            return self._page.t("log.unreachable", cluster=job.cluster)
        return ""
