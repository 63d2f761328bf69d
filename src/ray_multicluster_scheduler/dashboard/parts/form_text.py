"""Fields of a form as texts: how each is read, and how a value is written so that it is read back the same.

Lists are separated by commas, and pairs stand one per line as NAME=VALUE. What begins with a bracket is
JSON: that has a place for a comma in a word, and for a value of several lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.config.document import read_document
from ray_multicluster_scheduler.errors import ConfigInvalid, InvalidRuntimeEnv

#: Reading YAML is slow, and all pages wait for it. JSON may be as long as an environment.
MOST_YAML_CHARS = 20_000


class TextProblem(ValueError):
    """A text that cannot be read: a key of the catalogue says why. It does not repeat what may be secret."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key)
        self.key = key
        self.values = values


def read_line(text: str) -> str | None:
    """Return the text of a field, or None if it is blank."""
    return text.strip() or None


def read_number(text: str) -> int | float | None:
    """Return a number, a whole one where it is written as such."""
    if not text.strip():
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise TextProblem("submit.not_a_number")


def write_number(value: float | None) -> str:
    """Write a number as a person would: 2, not 2.0."""
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def read_words(text: str) -> list[str]:
    """Return words between commas or lines."""
    if text.lstrip().startswith("["):
        found = _json(text)
        if not isinstance(found, list):
            raise TextProblem("submit.not_a_list")
        return found
    return [word for line in text.splitlines() for part in line.split(",") if (word := part.strip())]


def write_words(words: Iterable[str]) -> str:
    """Write words for `read_words`."""
    words = list(words)
    plain = ", ".join(words)
    return plain if read_back(read_words, plain) == words else json.dumps(words, ensure_ascii=False)


def read_lines(text: str) -> list[str]:
    """Return the lines that hold something."""
    return [line for each in text.splitlines() if (line := each.strip())]


def read_pairs(text: str) -> dict[str, Any]:
    """Return what NAME=VALUE says, line by line; each name once."""
    if text.lstrip().startswith("{"):
        return _object(_json(text))
    pairs: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise TextProblem("submit.not_a_pair", line=number)
        if name.strip() in pairs:
            raise TextProblem("submit.name_twice", name=name.strip())
        pairs[name.strip()] = value.strip()
    return pairs


def write_pairs(pairs: Mapping[str, Any]) -> str:
    """Write pairs for `read_pairs`."""
    plain = "\n".join(f"{name}={value}" for name, value in pairs.items())
    same = read_back(read_pairs, plain) == dict(pairs)
    return plain if same else json.dumps(dict(pairs), ensure_ascii=False, indent=2)


def read_amounts(text: str) -> dict[str, float]:
    """Return amounts by name."""
    found = {}
    for name, value in read_pairs(text).items():
        try:
            amount = read_number(str(value))
        except TextProblem:
            amount = None
        if amount is None:
            raise TextProblem("submit.amount_not_a_number", name=name)
        found[name] = amount
    return found


def write_amounts(amounts: Mapping[str, float]) -> str:
    """Write amounts for `read_amounts`."""
    return write_pairs({name: write_number(amount) for name, amount in amounts.items()})


def read_mapping(text: str) -> dict[str, Any]:
    """Return what YAML or JSON says, read as carefully as clusters.yaml."""
    if not text.strip():
        return {}
    if text.lstrip().startswith("{"):
        try:
            return _object(json.loads(text))
        except ValueError:
            pass  # such as {pip: [requests]}, which is YAML
    if len(text) > MOST_YAML_CHARS:
        raise TextProblem("submit.yaml_too_long", most=MOST_YAML_CHARS)
    try:
        document = read_document(text, Path("runtime_env"))
    except ConfigInvalid as invalid:
        raise InvalidRuntimeEnv("; ".join(invalid.problems)) from None
    if document.problems:
        raise InvalidRuntimeEnv("; ".join(map(str, document.problems)))
    return _object(document.value)


def read_back(read: Any, text: str) -> Any:
    """Return what a text is read as; None: as nothing."""
    try:
        return read(text)
    except TextProblem:
        return None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TextProblem("submit.not_json", line=error.lineno, column=error.colno) from None
    except (ValueError, RecursionError):  # too many digits, too deep
        raise TextProblem("submit.not_json", line=1, column=1) from None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TextProblem("submit.not_a_mapping")
    return value
