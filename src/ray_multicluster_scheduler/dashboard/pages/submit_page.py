"""A form for a new job, with a dry run before it is submitted."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence

from nicegui import background_tasks, ui

from ray_multicluster_scheduler.dashboard.addresses import job_address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.copy_block import CopyBlock
from ray_multicluster_scheduler.dashboard.parts.form_inputs import FormInputs, said
from ray_multicluster_scheduler.dashboard.parts.heading import heading
from ray_multicluster_scheduler.dashboard.parts.job_as_code import as_command, as_python
from ray_multicluster_scheduler.dashboard.parts.job_form import (
    MAIN,
    MORE,
    OF_THE_DRIVER,
    OF_THE_ENVIRONMENT,
    WHOLE,
    Filled,
    FormField,
    Problem,
    Texts,
    field_of,
    read_form,
    texts_of,
)
from ray_multicluster_scheduler.dashboard.parts.job_list_address import address
from ray_multicluster_scheduler.dashboard.parts.plan_view import PlanPanel
from ray_multicluster_scheduler.environment.redact import is_redacted
from ray_multicluster_scheduler.errors import InvalidRequest, NotAuthenticated, SchedulerError
from ray_multicluster_scheduler.service.arrays import array_of
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import JobQuery, one_job
from ray_multicluster_scheduler.service.request import JobRequest

#: A dry run starts when nothing was typed for so long.
PLAN_AFTER_S = 1.0


async def build(page: Page) -> None:
    """Build the form: empty, or like the job that the address names."""
    clusters = await page.read("clusters", lambda service: service.clusters())
    source = page.query.get("from")
    texts: Texts = {}
    if source:
        texts = texts_of(await page.ask(lambda service: one_job(service, source)))
        ui.label(page.t("submit.from", job=source)).classes("quiet")
        if is_redacted(texts):
            ui.label(page.t("submit.from_redacted")).classes("notice").props("role=note data-test=redacted")
    form = _SubmitForm(page, [cluster.name for cluster in clusters], texts)
    form.changed()


class _SubmitForm:
    """The form, the dry run beside it, and the same job as code."""

    def __init__(self, page: Page, clusters: Sequence[str], texts: Texts) -> None:
        self._page = page
        #: Made with the form: whatever is clicked, and however often, it becomes one job.
        self._id = uuid.uuid4().hex[:12]
        self._filled = Filled(problems={})
        self._pause: asyncio.Task[None] | None = None
        self._sending = False
        self._tried = False
        self._inputs = FormInputs(page, self.changed, clusters)
        self._expansions: list[tuple[ui.expansion, frozenset[str]]] = []
        with ui.element("div").classes("submit-columns"):
            with ui.card():
                self._build_form(texts)
            with ui.element("div").classes("submit-side"):
                self._build_side()

    def changed(self) -> None:
        """Check what is typed, and ask for a dry run after a pause."""
        if self._pause is not None:
            self._pause.cancel()
        texts = self._inputs.texts()
        self._filled = filled = read_form(texts, user=self._page.visitor.caller.user)
        self._show_problems(filled.problems)
        self._show_code(filled, texts)
        if filled.request is None:
            blank = not texts["entrypoint"].strip()
            self._plan.say(self._page.t("submit.plan_needs_command" if blank else "submit.plan_needs_form"))
            return
        self._plan.wait()
        self._pause = background_tasks.create(self._plan_after_a_pause(), name="dry run of a form")

    def _build_form(self, texts: Texts) -> None:
        page = self._page
        self._inputs.add(MAIN, texts)
        self._section("submit.environment", OF_THE_ENVIRONMENT, texts, "submit.no_directories")
        self._section("submit.more", (*MORE, *OF_THE_DRIVER), texts)
        self._whole = ui.label().classes("notice notice-bad").props("role=alert data-test=problem")
        with ui.element("div").classes("line"):
            self._send = ui.button(page.t("submit.send"), icon="send", on_click=self._submit)
            self._send.props("no-caps unelevated data-test=send")
            self._dry = ui.button(page.t("submit.dry_run"), icon="fact_check", on_click=self._plan_now)
            self._dry.props("no-caps outline data-test=dry-run")

    def _section(self, key: str, fields: Sequence[FormField], texts: Texts, note: str = "") -> None:
        names = frozenset(field.name for field in fields)
        used = any(texts.get(name, "") not in {"", "wait"} for name in names)
        with ui.expansion(self._page.t(key), value=used).classes("form-section") as expansion:
            if note:
                ui.label(self._page.t(note)).classes("quiet")
            self._inputs.add(fields, texts)
        self._expansions.append((expansion, names))

    def _build_side(self) -> None:
        page = self._page
        with ui.card():
            heading(page.t("submit.plan"))
            self._plan = PlanPanel(page)
        with ui.card() as self._code:
            heading(page.t("submit.as_command"))
            self._command = CopyBlock(page, page.t("submit.as_command"), wrap=True)
            heading(page.t("submit.as_python"))
            self._python = CopyBlock(page, page.t("submit.as_python"), wrap=True)

    def _show_problems(self, problems: Mapping[str, Problem]) -> None:
        """Show each problem at its field. That the command is missing is no news in an empty form."""
        shown = dict(problems)
        if not self._tried and not self._inputs.texts()["entrypoint"].strip():
            shown.pop("entrypoint", None)
        self._inputs.show(shown)
        whole = shown.get(WHOLE)
        self._whole.set_text("" if whole is None else said(self._page, whole))
        self._whole.set_visibility(whole is not None)
        for expansion, names in self._expansions:
            if names & shown.keys():
                expansion.open()

    def _show_code(self, filled: Filled, texts: Texts) -> None:
        self._code.set_visibility(filled.request is not None)
        if filled.request is None:
            return
        array = texts["array"].strip() if filled.indices is not None else None
        self._command.show(as_command(filled.request, array))
        self._python.show(as_python(filled.request, filled.indices))

    async def _plan_after_a_pause(self) -> None:
        await asyncio.sleep(PLAN_AFTER_S)
        with self._page.client:
            await self._show_plan(self._filled)

    async def _plan_now(self) -> None:
        self._tried = True
        self.changed()
        if self._pause is not None:
            self._pause.cancel()
        await self._show_plan(self._filled)

    async def _show_plan(self, filled: Filled) -> None:
        """Ask what would happen. Whoever goes on typing meanwhile gets the answer to what came last."""
        request = filled.request
        if request is None:
            return
        asked = _numbered(request, filled.indices and filled.indices[:1], self._id)[0]
        self._dry.props("loading")
        try:
            plan = await self._page.ask(lambda service: service.plan(asked), role=Role.SUBMIT)
        except NotAuthenticated:
            self._page.log_in()
        except InvalidRequest as problem:
            if filled is self._filled:
                self._show_refusal(problem)
        except SchedulerError as problem:
            self._plan.say(str(problem))
        else:
            if filled is self._filled:
                self._plan.show(plan)
        finally:
            self._dry.props(remove="loading")

    async def _submit(self) -> None:
        """Submit what is typed now, once."""
        self._tried = True
        self.changed()
        request, indices = self._filled.request, self._filled.indices
        if request is None or self._sending:
            return
        self._sending = True
        self._send.props("loading disable")
        try:
            jobs = _numbered(request, indices, self._id)
            accepted = await self._page.ask(lambda service: service.submit(jobs), role=Role.SUBMIT)
        except NotAuthenticated:
            self._page.log_in()
        except SchedulerError as problem:
            if self._pause is not None:
                self._pause.cancel()
            self._inputs.focus(self._show_refusal(problem))
        else:
            self._page.live.forget_answers()
            if indices is None:
                ui.navigate.to(job_address(accepted[0].submission_id))
            else:
                ui.navigate.to(address(JobQuery(group=accepted[0].group)))
            return
        self._sending = False
        self._send.props(remove="loading disable")

    def _show_refusal(self, problem: SchedulerError) -> str:
        """Show why the service refuses what the form says; returns the field that is to blame."""
        field = field_of(problem, self._inputs.texts())
        self._show_problems({field: problem})
        self._plan.refuse(self._page.t("submit.plan_refused"))
        return field


def _numbered(request: JobRequest, indices: Sequence[int] | None, form_id: str) -> list[JobRequest]:
    """Return the job, or all of an array, under ids that belong to the form."""
    if indices is None:
        return [request.replaced(submission_id=f"sub_{form_id}")]
    return array_of(request.replaced(submission_id=f"array_{form_id}"), indices)
