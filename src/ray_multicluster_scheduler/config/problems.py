"""Problems in a configuration file, described so that the line can be corrected without guessing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from ray_multicluster_scheduler.text.spelling import did_you_mean

#: The path to a value: keys of mappings and positions in lists.
Where = tuple[str | int, ...]

#: Fields whose values are never repeated in a message, because people paste secrets there.
UNSHOWN = frozenset({"auth_token_env", "runtime_env"})

_EXPECTED: Mapping[str, str] = {
    "bool_type": "true or false",
    "dict_type": "a mapping (`key: value` lines)",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "int_type": "a whole number",
    "less_than_equal": "{le:g} or less",
    "list_type": "a list such as [one, two]",
    "model_type": "a mapping (`key: value` lines)",
    "string_type": "text",
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One problem: its line, its field, and what was found and expected."""

    line: int
    where: str = ""
    text: str

    def __str__(self) -> str:
        return ": ".join(part for part in (f"line {self.line}", self.where, self.text) if part)


def dotted(where: Where) -> str:
    """Write the path to a value as people do: `clusters.mac.tags[0]`."""
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where)
    return steps.removeprefix(".")


def shown(value: object) -> str:
    """Describe a value that was found, without repeating long texts or anything like `user:password@`."""
    if isinstance(value, str) and "@" not in value:
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)[:60]
    return kind(value)


def kind(value: object) -> str:
    """Name the kind of a value, for fields whose values are not shown."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bool, int, float)):
        return "true or false" if isinstance(value, bool) else "a number"
    return "a list" if isinstance(value, list) else "a mapping"


def explain(error: ErrorDetails, schema: type[BaseModel]) -> str:
    """Turn one error of pydantic into a message of ours."""
    field = str(error["loc"][0]) if error["loc"] else ""
    context: Mapping[str, Any] = error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        return f"unknown key; {did_you_mean(field, schema.model_fields)}"
    if error["type"] == "missing":
        return f"missing. {schema.model_fields[field].description}"
    if error["type"] == "value_error":
        return str(context["error"])
    found = kind(error["input"]) if field in UNSHOWN else shown(error["input"])
    expected = _EXPECTED.get(error["type"])
    return f"expected {expected.format(**context)}, found {found}" if expected else error["msg"]
