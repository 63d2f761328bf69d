"""The inputs of the form for a job, made from its fields: label, explanation, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.form_text import TextProblem
from ray_multicluster_scheduler.dashboard.parts.job_form import FormField, Problem, Texts

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
