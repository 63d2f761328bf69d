"""What would happen to a job: the candidates with their scores, the refusals, and what each would be sent."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.decision_view import Refusals, Scores
from ray_multicluster_scheduler.dashboard.parts.environment_table import EnvironmentTable
from ray_multicluster_scheduler.dashboard.parts.heading import heading
from ray_multicluster_scheduler.service.views import EnvironmentView, PlanView

_VERDICTS = "plan-goes plan-stays plan-refused"


class PlanPanel(ui.element):
    """The answer of a dry run. It stays while a new one is under way."""

    def __init__(self, page: Page) -> None:
        super().__init__("div")
        self._page = page
        self._shown: PlanView | None = None
        self.classes("plan").props("data-test=plan")
        with self:
            self._verdict = ui.label().classes("plan-verdict").props("role=status")
            self._answer = ui.element("div").classes("plan")

    def say(self, text: str) -> None:
        """Say why there is no answer."""
        self._shown = None
        self._verdict.set_text(text)
        self._verdict.classes(remove=_VERDICTS)
        self._answer.clear()

    def refuse(self, text: str) -> None:
        """Say that the job would not be accepted."""
        self.say(text)
        self._verdict.classes(add="plan-refused")

    def wait(self) -> None:
        """Say that an answer is on its way, unless an earlier one is shown."""
        if self._shown is None:
            self._verdict.set_text(self._page.t("submit.plan_asks"))

    def show(self, plan: PlanView) -> None:
        """Show an answer; the same one is left alone, for somebody may be reading in it."""
        if plan == self._shown:
            return
        self._shown = plan
        self._verdict.set_text(verdict(self._page, plan))
        self._verdict.classes(add="plan-stays" if plan.cluster is None else "plan-goes", remove=_VERDICTS)
        self._answer.clear()
        with self._answer:
            self._suggestions(plan)
            self._clusters(plan)
            self._environments(plan)

    def _suggestions(self, plan: PlanView) -> None:
        if plan.suggestions:
            heading(self._page.t("submit.suggestions"), level=3)
            with ui.element("ul").classes("plain-list"):
                for sentence in plan.suggestions:
                    with ui.element("li"):
                        ui.label(sentence)

    def _clusters(self, plan: PlanView) -> None:
        page, decision = self._page, plan.decision
        if decision.scores:
            heading(page.t("submit.candidates"), level=3)
            Scores(page).show_decision(decision)
        if decision.refusals:
            heading(page.t("submit.refusals"), level=3)
            Refusals(page).show_decision(decision)

    def _environments(self, plan: PlanView) -> None:
        if plan.environments:
            heading(self._page.t("submit.environments"), level=3)
        for name, sent in plan.environments.items():
            title = self._page.t("submit.refused_there", cluster=name) if sent.refused else name
            with ui.expansion(title, value=name == plan.cluster).classes("plan-environment"):
                if sent.refused is not None:
                    ui.label(sent.refused)
                else:
                    self._environment(sent)

    def _environment(self, sent: EnvironmentView) -> None:
        page = self._page
        ui.label(sent.entrypoint or "").classes("mono lines")
        table = EnvironmentTable(page, empty=page.t("submit.environment_empty"))
        table.show_environment(sent.runtime_env or {}, sent.origins)


def verdict(page: Page, plan: PlanView) -> str:
    """Say in one sentence where the job would go, or that it would wait."""
    if plan.cluster is not None:
        return page.t("submit.would_go", cluster=plan.cluster, why=plan.decision.sentence)
    if plan.position is None:
        return page.t("submit.would_wait_somewhere", why=plan.decision.sentence)
    return page.t("submit.would_wait", position=plan.position, why=plan.decision.sentence)
