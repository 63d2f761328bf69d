"""A form for a new job, with a dry run before it is submitted."""

from __future__ import annotations

import asyncio
import json
import shlex
import textwrap
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pprint import pformat
from typing import Any

from nicegui import background_tasks, ui

from ray_multicluster_scheduler.dashboard.addresses import job_address
from ray_multicluster_scheduler.dashboard.decision_view import EnvironmentTable, Refusals, Scores
from ray_multicluster_scheduler.dashboard.dialogs import CopyBlock, heading
from ray_multicluster_scheduler.dashboard.job_form import (
    AMOUNTS,
    MAIN,
    MORE,
    NOT_IN_THE_FORM,
    OF_THE_DRIVER,
    OF_THE_ENVIRONMENT,
    WHOLE,
    Filled,
    FormField,
    Problem,
    TextProblem,
    Texts,
    field_of,
    read_form,
    texts_of,
    write_number,
)
from ray_multicluster_scheduler.dashboard.job_list_address import address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.environment.options import ARRAY_INDEX_VAR, with_env_vars
from ray_multicluster_scheduler.environment.redact import is_redacted
from ray_multicluster_scheduler.errors import InvalidRequest, NotAuthenticated, SchedulerError
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS, JobOption
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.query import JobQuery, one_job
from ray_multicluster_scheduler.service.request import PLACEHOLDER, PREFIX, JobRequest, array_of
from ray_multicluster_scheduler.service.views import EnvironmentView, PlanView

# The inputs of the form for a job, made from its fields: label, explanation, and what is wrong.


#: What is typed is checked after this pause, or when the field is left.
PAUSE_MS = 350
_MONO = {"entrypoint", "env_vars", "pip", "runtime_env", "metadata", "resources"}

_WIDTHS = {"area": "form-wide", "number": "form-narrow", "cluster": "form-narrow"}

Input = ui.input | ui.textarea | ui.select | ui.checkbox


class FormInputs:
    """All inputs by the name of their field."""

    def __init__(self, page: Page, changed: Callable[[], None], clusters: Sequence[str]) -> None:
        self._page = page
        self._changed = changed
        self._clusters = list(clusters)
        self._inputs: dict[str, Input] = {}

    def add(self, fields: Iterable[FormField], texts: Texts) -> None:
        """Build the inputs of some fields, filled with these texts."""
        with ui.element("div").classes("form-grid"):
            for field in fields:
                self._inputs[field.name] = self._build(field, texts.get(field.name, ""))

    def texts(self) -> dict[str, str]:
        """Return what is typed now."""
        return {name: _text(element.value) for name, element in self._inputs.items()}

    def show(self, problems: dict[str, Problem]) -> None:
        """Show what is wrong at each field, and nothing at the others."""
        for name, element in self._inputs.items():
            if not isinstance(element, ui.checkbox):
                problem = problems.get(name)
                element.error = None if problem is None else said(self._page, problem)

    def focus(self, name: str) -> None:
        """Lead the visitor to a field, if there is one of this name."""
        if element := self._inputs.get(name):
            element.run_method("focus")

    def _build(self, field: FormField, text: str) -> Input:
        label, about = self._page.t(f"submit.{field.name}"), self._page.t(f"submit.about_{field.name}")
        if field.kind == "tick":
            tick = ui.checkbox(label, value=text == "true", on_change=self._changed)
            tick.props["title"] = about
            return tick.props(f"data-test={field.name}")
        element: ui.input | ui.textarea | ui.select
        if field.kind == "cluster":
            known = dict.fromkeys([*self._clusters, *([text] if text else [])])
            options = {"": self._page.t("submit.any_cluster"), **{name: name for name in known}}
            element = ui.select(options, label=label, value=text, on_change=self._changed)
        elif field.kind == "area":
            element = ui.textarea(label, value=text, on_change=self._changed).props("autogrow")
        else:
            element = ui.input(label, value=text, on_change=self._changed)
        element.without_auto_validation()
        element.props["hint"] = about
        # The explanation is there for who is at the field: under each of them it would double the form.
        element.props(
            f"outlined dense hide-bottom-space hide-hint debounce={PAUSE_MS} data-test={field.name}"
        )
        element.classes(_WIDTHS.get(field.kind, ""))
        if field.kind == "number":
            element.props("inputmode=decimal autocomplete=off")
        if field.name == "entrypoint":
            element.props('input-style="min-height: 4.5em"')
        if field.name in _MONO:
            element.classes("q-field--mono")
        return element


def said(page: Page, problem: Problem) -> str:
    """Say what is wrong: in words of the catalogue, or in those of the service."""
    return page.t(problem.key, **problem.values) if isinstance(problem, TextProblem) else str(problem)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else ""
    return "" if value is None else str(value)


# What would happen to a job: the candidates with their scores, the refusals, and what each would be sent.


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


# The same job as a command line and as a program, to be copied.


#: Longer command lines are written in several lines.
LINE = 80
#: `raymc submit` has no option for these; the metadata carries them.
_AS_METADATA = ("group",)
_FLAGS = {"tags": "--tag", "only_tags": "--only-tag"}
#: What a shell obeys within double quotes.
_ESCAPED = str.maketrans({letter: f"\\{letter}" for letter in '\\"$`'})
#: The command first, then what a job is, then its options.
_OPTIONS = {option.name for option in JOB_OPTIONS}
_ARGUMENTS = sorted(
    JobRequest.model_fields.keys() - NOT_IN_THE_FORM.keys(),
    key=lambda name: (name in _OPTIONS, list(JobRequest.model_fields).index(name)),
)

_PROGRAM = """\
from ray_multicluster_scheduler import submit_job

submission_id = submit_job(
{arguments}
)
"""
_PROGRAM_OF_AN_ARRAY = """\
import uuid

from ray_multicluster_scheduler import submit_jobs

group = f"array_{{uuid.uuid4().hex[:12]}}"
submission_ids = submit_jobs(
    [
        dict(
{arguments}
            submission_id=f"{{group}}-{{i}}",
            group=group,
        )
        for i in {indices}
    ]
)
"""


def as_command(request: JobRequest, array: str | None = None) -> str:
    """Return the `raymc submit` that asks for this job."""
    words = [" ".join(map(_quoted, pair)) for pair in _options(request, array)]
    parts = ["raymc submit", *words, f"-- {_command(request.entrypoint)}"]
    line = " ".join(parts)
    return line if len(line) <= LINE else " \\\n  ".join(parts)


def _command(entrypoint: str) -> str:
    """Return a command as it stands if the command line puts it together again, else as one word."""
    try:
        words = shlex.split(entrypoint)
    except ValueError:  # a quote is missing
        words = []
    return entrypoint if len(words) > 1 and shlex.join(words) == entrypoint else _quoted(entrypoint)


def _quoted(word: str) -> str:
    """Quote a word for a shell as a person would: the other quotes where it holds single ones."""
    if "'" not in word or "!" in word:  # an interactive shell takes ! for its history, in double quotes too
        return shlex.quote(word)
    return '"' + word.translate(_ESCAPED) + '"'


def as_python(request: JobRequest, indices: Sequence[int] | None = None) -> str:
    """Return a program that submits this job."""
    arguments = given(request)
    if indices is None:
        lines = [f"    {name}={_literal(value, 4)}," for name, value in arguments.items()]
        return _PROGRAM.format(arguments="\n".join(lines))
    arguments["runtime_env"] = with_env_vars(request.runtime_env, {ARRAY_INDEX_VAR: PLACEHOLDER})
    lines = [
        f"            {name}={_with_index(_literal(value, 12))}"
        + (f'.replace("{PLACEHOLDER}", str(i)),' if _is_numbered(name, value) else ",")
        for name, value in arguments.items()
    ]
    return _PROGRAM_OF_AN_ARRAY.format(arguments="\n".join(lines), indices=_runs(indices))


def given(request: JobRequest) -> dict[str, Any]:
    """Return the arguments of a request that say something, as `submit_job` takes them."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name in _ARGUMENTS
        if (value := getattr(request, name)) != JobRequest.model_fields[name].default
        and value not in (None, {}, ())
    }


def _options(request: JobRequest, array: str | None) -> Iterator[tuple[str, ...]]:
    """Yield the options, each as one or two words."""
    if request.job_id is not None:
        yield _option("--name", request.job_id)
    if array is not None:
        yield _option("--array", array)
    amounts = dict(request.resource_requirements or {})
    for flag, resource in AMOUNTS.items():
        if resource in amounts:
            yield _option(f"--{flag}", write_number(amounts.pop(resource)))
    for option in JOB_OPTIONS:
        yield from _job_option(option, getattr(request, option.name))
    metadata = dict(request.metadata or {})
    metadata |= {f"{PREFIX}{name}": value for name in _AS_METADATA if (value := getattr(request, name))}
    if amounts:
        metadata[f"{PREFIX}resources"] = json.dumps(amounts, ensure_ascii=False)
    for flag, value in (
        ("--runtime-env-json", request.runtime_env),
        ("--metadata-json", metadata),
        ("--entrypoint-resources", request.entrypoint_resources),
        ("--entrypoint-label-selector", request.entrypoint_label_selector),
    ):
        if value:
            yield _option(flag, json.dumps(value, ensure_ascii=False))


def _job_option(option: JobOption, value: Any) -> Iterator[tuple[str, ...]]:
    if value == option.default or option.name in {*NOT_IN_THE_FORM, *_AS_METADATA}:
        return
    flag = _FLAGS.get(option.name) or f"--{option.word.replace('_', '-')}"
    if value is True:
        yield (flag,)
    elif isinstance(value, tuple):
        yield from (_option(flag, word) for word in value)
    else:
        yield _option(flag, value if isinstance(value, str) else write_number(value))


def _option(flag: str, value: str) -> tuple[str, ...]:
    """A value that looks like an option stays with its own."""
    return (f"{flag}={value}",) if value.startswith("-") else (flag, value)


def _literal(value: Any, indent: int) -> str:
    if isinstance(value, str):
        return repr(value)
    return textwrap.indent(pformat(value, width=100 - indent, sort_dicts=False), " " * indent).lstrip()


def _with_index(literal: str) -> str:
    """Put the index into the variable that tells it, in an environment that was written as a literal."""
    in_mapping, in_list = f"{ARRAY_INDEX_VAR!r}: {PLACEHOLDER!r}", f"'{ARRAY_INDEX_VAR}={PLACEHOLDER}'"
    return literal.replace(in_mapping, f"{ARRAY_INDEX_VAR!r}: str(i)").replace(in_list, f"f{in_list}")


def _is_numbered(name: str, value: Any) -> bool:
    return name in {"entrypoint", "job_id"} and PLACEHOLDER in value


def _runs(indices: Sequence[int]) -> str:
    """Write indices with a range where it is shorter."""
    if len(indices) <= 4:
        return repr(list(indices))
    steps = {after - before for before, after in pairwise(indices)}
    if len(steps) == 1 and (step := steps.pop()) > 0:
        return f"range({indices[0]}, {indices[-1] + 1}{'' if step == 1 else f', {step}'})"
    return textwrap.indent(pformat(list(indices), width=100, compact=True), " " * 8).lstrip()


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
