"""On which clusters a job was tried, and the environment that it got there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nicegui import ui

from ray_multicluster_scheduler.dashboard.addresses import cluster_address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import Lasting, When
from ray_multicluster_scheduler.dashboard.parts.environment_table import EnvironmentTable, environment_rows
from ray_multicluster_scheduler.dashboard.parts.plain_table import PlainTable, Row
from ray_multicluster_scheduler.service.views import AttemptView, JobView


class AttemptsTable(PlainTable):
    """One row for each placement."""

    def __init__(self, page: Page) -> None:
        names = ("number", "cluster", "placed", "started", "lasting", "outcome", "reason")
        super().__init__([page.t(f"job.{name}") for name in names], empty=page.t("job.no_attempts"))
        self._page = page
        self.props("data-test=job-attempts").classes("by-word")

    def show_attempts(self, attempts: Sequence[AttemptView], *, said: str) -> None:
        """Show these, the last one first. A reason that the page says already is left out."""
        self.show([self._row(each, said) for each in reversed(attempts)])

    def _row(self, each: AttemptView, said: str) -> Row:
        reason = "–" if each.reason == said else each.reason
        outcome = each.outcome and self._page.words.known(f"outcomes.{each.outcome}", each.outcome)
        cells = (
            str(each.number),
            partial(ui.link, each.cluster, cluster_address(each.cluster)),
            partial(When, each.placed_at, style="moment"),
            partial(When, each.started_at, style="clock") if each.started_at else "–",
            partial(Lasting, each.started_at, each.ended_at) if each.started_at else "–",
            outcome or self._page.t("job.lives"),
            partial(_lines, reason),
        )
        return (each.number, each.started_at, each.ended_at, each.outcome, reason), cells


class Environment(ui.element):
    """The composed environment of one attempt, the last one by default, with the origin of each value."""

    def __init__(self, page: Page) -> None:
        super().__init__("div")
        self.classes("stack")
        self._page = page
        self._job: JobView | None = None
        self._attempts: Sequence[AttemptView] = ()
        with self:
            self._about = ui.label().classes("quiet")
            self._choice = ui.select({}, label=page.t("job.attempt"), on_change=self._show)
            self._choice.props("dense outlined options-dense data-test=job-environment-of")
            self._choice.style("min-width: 12rem")
            self._table = EnvironmentTable(page, empty=page.t("job.environment_empty"))

    def show(self, job: JobView, attempts: Sequence[AttemptView]) -> None:
        """Show the environment of the chosen attempt; before there is one, that of the job itself."""
        self._job = job
        newest = self._attempts[-1].number if self._attempts else None
        chosen = self._choice.value
        self._attempts = attempts
        options = {each.number: f"{each.number} · {each.cluster}" for each in reversed(attempts)}
        if options != self._choice.options:
            keep = chosen if chosen in options and chosen != newest else next(iter(options), None)
            self._choice.set_options(options, value=keep)
        self._choice.set_visibility(len(attempts) > 1)
        self._show()

    def _show(self) -> None:
        page, job = self._page, self._job
        if job is None:
            return
        attempt = next((each for each in self._attempts if each.number == self._choice.value), None)
        if attempt is None or not attempt.entrypoint:  # it was not sent yet
            self._about.set_text(page.t("job.environment_own"))
            own = {option: "job" for option, _, _ in environment_rows(job.runtime_env, {})}
            self._table.show_environment(job.runtime_env, own)
        else:
            text = page.t("job.environment_of", attempt=attempt.number, cluster=attempt.cluster)
            self._about.set_text(text)
            self._table.show_environment(attempt.runtime_env, attempt.origins)


def _lines(text: str) -> None:
    ui.label(text).classes("lines")
