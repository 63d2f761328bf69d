"""The plan of a pipeline, checked before anything is read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.text import did_you_mean
from raymc_pipeline.operators import Kind, Operator, Schema, find_operator

_KIND_WORDS: Mapping[Kind, str] = {"numeric": "number", "text": "text", "list": "list", "any": "usable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator with all of its parameters. If `columns` is None, they are chosen by their kind."""

    operator: str
    params: Mapping[str, Any]
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole pipeline: read, step by step, write."""

    steps: tuple[Step, ...]
    source: str
    output: str | None = None
    #: Columns that operators may choose from; None for all.
    columns: tuple[str, ...] | None = None

    def to_json(self) -> str:
        """Return the plan as text, for a job that executes it on a cluster."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        steps = tuple(
            Step(operator=step["operator"], params=step["params"], columns=_names(step["columns"]))
            for step in fields["steps"]
        )
        return cls(
            steps=steps, source=fields["source"], output=fields["output"], columns=_names(fields["columns"])
        )


def make_plan(
    operators: Sequence[str],
    source: str,
    *,
    output: str | None = None,
    columns: Sequence[str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> Plan:
    """Check names and parameters; `params` has one mapping per operator, which may set its `columns`."""
    if not operators:
        raise InvalidRequest("a pipeline needs an operator; `raymc pipeline list` shows all")
    by_operator = params or {}
    for name in by_operator:
        if name not in operators:
            raise InvalidRequest(
                f"--params: {name!r} is not among the operators; {did_you_mean(name, operators)}"
            )
    return Plan(
        steps=tuple(_step(find_operator(name), by_operator.get(name, {})) for name in operators),
        source=_absolute(source),
        output=None if output is None else _absolute(output),
        columns=_names(columns),
    )


def choose_columns(plan: Plan, step: Step, schema: Schema) -> list[str]:
    """Return the columns of a step: its own, or else the usable ones of its kind."""
    operator = find_operator(step.operator)
    kind = operator.kind_for(step.params)
    if step.columns is not None:
        _check_known(step.operator, step.columns, schema)
        return _of_kind(step.operator, step.columns, kind, schema)
    # No error for missing columns here: an earlier operator may have made or consumed them.
    pool = [name for name in schema if plan.columns is None or name in plan.columns]
    chosen = [name for name in pool if kind in (schema[name], "any")]
    if not chosen:
        available = ", ".join(f"{name} ({schema[name]})" for name in pool) or "nothing"
        raise InvalidRequest(
            f"{step.operator}: no {_KIND_WORDS[kind]} column to work on; there is {available}"
        )
    return chosen


def check_columns(plan: Plan, schema: Schema) -> None:
    """Refuse `--columns` that the input does not have."""
    _check_known("--columns", plan.columns or (), schema)


def check_names(plan: Plan, names: Collection[str]) -> None:
    """Refuse columns that the input does not have: `--columns`, and those of the first operator.

    Later operators may use columns that earlier ones make.
    """
    _check_known("--columns", plan.columns or (), names)
    _check_known(plan.steps[0].operator, plan.steps[0].columns or (), names)


def _check_known(who: str, columns: Sequence[str], schema: Collection[str]) -> None:
    for name in columns:
        if name not in schema:
            raise InvalidRequest(f"{who}: no column is called {name!r}; {did_you_mean(name, schema)}")


def _of_kind(who: str, columns: Sequence[str], kind: Kind, schema: Schema) -> list[str]:
    for name in columns:
        # Numbers are valid as categories, but text is not valid as numbers.
        if kind in ("numeric", "list") and schema[name] != kind:
            raise InvalidRequest(
                f"{who}: the column {name!r} holds {schema[name]}, but the operator needs {kind} columns"
            )
    return list(columns)


def _absolute(location: str) -> str:
    """Return an absolute path; a URI is returned unchanged."""
    return location if "://" in location else str(Path(location).expanduser().absolute())


def _step(operator: Operator, params: object) -> Step:
    if not isinstance(params, Mapping):
        raise InvalidRequest(f"--params: {operator.name} needs a mapping of its parameters")
    valid = [*operator.parameters, "columns"]
    for name in params:
        if name not in valid:
            raise InvalidRequest(
                f"{operator.name} has no parameter {name!r}; {did_you_mean(str(name), valid)}"
            )
    values = {name: _value(operator, name, params) for name in operator.parameters}
    return Step(operator=operator.name, params=values, columns=_names(params.get("columns"), operator.name))


def _value(operator: Operator, name: str, params: Mapping[str, Any]) -> Any:
    parameter = operator.parameters[name]
    if name not in params:
        if parameter.required:
            raise InvalidRequest(
                f"{operator.name} needs {name} ({parameter.about}): --params "
                f'\'{{"{operator.name}": {{"{name}": …}}}}\''
            )
        return parameter.default
    value = params[name]
    is_bool = isinstance(value, bool) and bool not in parameter.types
    if is_bool or not isinstance(value, parameter.types):
        words = " or ".join("null" if kind is type(None) else kind.__name__ for kind in parameter.types)
        raise InvalidRequest(f"{operator.name}: {name} must be {words}, not {value!r}")
    if parameter.choices and value not in parameter.choices:
        raise InvalidRequest(
            f"{operator.name}: {name} is one of {', '.join(parameter.choices)}, not {value!r}"
        )
    return value


def _names(columns: object, who: str = "--columns") -> tuple[str, ...] | None:
    if columns is None:
        return None
    if not isinstance(columns, (list, tuple)) or not all(isinstance(name, str) for name in columns):
        raise InvalidRequest(f"{who}: columns must be a list of names")
    if not columns:
        raise InvalidRequest(f"{who}: the list of columns is empty; leave it out to use all that fit")
    return tuple(dict.fromkeys(columns))
