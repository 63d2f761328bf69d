"""Read YAML from an untrusted file as data with line numbers, and say where and how it is wrong.

PyYAML's safe loader silently takes the last of two equal keys, expands aliases without a limit and reads
`1.10` in `env_vars` as the number 1.1. Here each of these is reported with its line, or read as it was
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import ErrorDetails
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

from ray_multicluster_scheduler.errors import ConfigInvalid
from ray_multicluster_scheduler.text import did_you_mean

# Problems in a configuration file, described so that the line can be corrected without guessing.


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


MAX_DEPTH = 50
MAX_DIGITS = 40
#: Counted with every alias unfolded: a few short lines can stand for billions of values.
MAX_VALUES = 100_000

_STR, _NULL, _MERGE, _TIMESTAMP, *_NUMBERS = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "null", "merge", "timestamp", "int", "float")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The value of a YAML file, the line of every key and item, and the problems found while reading it."""

    value: Any
    lines: Mapping[Where, int]
    problems: tuple[Problem, ...]

    def problem(self, where: Where, text: str) -> Problem:
        """Make a problem with the line of `where`, or of the nearest enclosing value that has a line."""
        at = where
        while at and at not in self.lines:
            at = at[:-1]
        return Problem(line=self.lines[at], where=dotted(where), text=text)


def read_document(text: str, path: Path) -> Document:
    """Read YAML, or raise `ConfigInvalid` when it is not readable at all."""
    try:
        return _read(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _invalid(path, mark.line + 1 if mark else 1, _in_our_words(error)) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _invalid(path, line, f"the character {error.character!r} is not allowed in YAML") from None


def _invalid(path: Path, line: int, text: str) -> ConfigInvalid:
    return ConfigInvalid(str(path), [str(Problem(line=line, text=text))])


#: PyYAML's messages and ours. PyYAML quotes the text, which may be part of a secret.
_OUR_WORDS = {
    "'\\t'": "a tab is used for indentation; YAML wants spaces",
    "undefined alias": "an alias (*name) without its anchor (&name); text that starts with * needs quotes",
    "duplicate anchor": "an anchor (&name) that exists already; text that starts with & needs quotes",
    "tag handle": "tags are refused; text that starts with ! needs quotes",
    "another document": "a second document starts here (---); the file must hold one",
}


def _in_our_words(error: yaml.MarkedYAMLError) -> str:
    """Say what is wrong without the source line that PyYAML would quote."""
    if isinstance(error, _Refused):
        return str(error.problem)
    theirs = f"{error.context}: {error.problem}"
    return next(
        (ours for word, ours in _OUR_WORDS.items() if word in theirs), f"not valid YAML: {error.problem}"
    )


def _read(text: str) -> Document:
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return Document(value=None, lines={(): 1}, problems=())
        _Measure().of(root)
        survey = _Survey(root)
        value = loader.construct_document(root)
    finally:
        loader.dispose()
    return Document(value=value, lines=survey.lines, problems=tuple(survey.problems))


class _Refused(ConstructorError):
    """Valid YAML that is not allowed in a configuration."""

    def __init__(self, at: yaml.Node | yaml.Event, problem: str) -> None:
        super().__init__(problem=problem, problem_mark=at.start_mark)  # type: ignore[arg-type]


class _Loader(yaml.SafeLoader):
    """The safe loader without tags, dates and unlimited nesting."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) not in {None, "!", _STR}:
            raise _Refused(event, "tags (!!python/object) are refused; text that starts with ! needs quotes")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Refused(event, f"nested more than {MAX_DEPTH} levels deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
        unreadable = _Refused(node, "this number cannot be read; text needs quotes")
        if node.tag in _NUMBERS and len(node.value) > MAX_DIGITS:
            raise unreadable
        try:
            return super().construct_object(node, deep=deep)
        except ValueError:  # 0x_
            raise unreadable from None


# Dates stay text: nothing here is a date, and Ray's JSON has none.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Measure:
    """Counts the values of a document with all aliases expanded. Linear: each node is counted once."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[int, int]] = {}
        self.open: set[int] = set()

    def of(self, node: yaml.Node) -> tuple[int, int]:
        """Return the number of values in a node, and how deeply they are nested."""
        if id(node) in self.known:
            return self.known[id(node)]
        if id(node) in self.open:
            raise _Refused(node, "an alias refers to itself")
        self.open.add(id(node))
        values, depth = 1, 0
        for child in _children(node):
            child_values, child_depth = self.of(child)
            values, depth = values + child_values, max(depth, child_depth + 1)
        if values > MAX_VALUES or depth > MAX_DEPTH:
            raise _Refused(node, f"aliases unfold to more than {MAX_VALUES} values or {MAX_DEPTH} levels")
        self.open.discard(id(node))
        self.known[id(node)] = values, depth
        return values, depth


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


class _Survey:
    """Notes the line of every key and item, reports repeated keys, and keeps text text."""

    def __init__(self, root: yaml.Node) -> None:
        self.lines: dict[Where, int] = {(): _line(root)}
        self.problems: list[Problem] = []
        self.walk(root, ())

    def walk(self, node: yaml.Node, where: Where) -> None:
        if isinstance(node, yaml.MappingNode):
            self.mapping(node, where)
        elif isinstance(node, yaml.SequenceNode):
            for position, item in enumerate(node.value):
                self.lines.setdefault((*where, position), _line(item))
                self.walk(item, (*where, position))
        elif _is_text(where) and node.tag != _NULL:
            node.tag = _STR

    def mapping(self, node: yaml.MappingNode, where: Where) -> None:
        first: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merges = [(key, value) for key, value in node.value if key.tag == _MERGE]
        for key, value in node.value:
            if key.tag == _MERGE:
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise _Refused(key, "a key must be a plain word")
            key.tag = _STR  # a cluster may be named `no` or `145`
            if key.value in first:
                text = f"the key is written twice, first on line {_line(first[key.value][0])}"
                self.problems.append(Problem(line=_line(key), where=dotted((*where, key.value)), text=text))
                continue
            first[key.value] = key, value
            self.lines.setdefault((*where, key.value), _line(key))
            self.walk(value, (*where, key.value))
        node.value = [*merges, *first.values()]  # so that a repeated key is reported once
        for _, source in merges:  # keys that are written here take precedence over those of `<<`
            for part in source.value if isinstance(source, yaml.SequenceNode) else [source]:
                self.walk(part, where)


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _is_text(where: Where) -> bool:
    """Tell whether a value is text whatever it looks like: `VERSION: 1.10` must not become 1.1."""
    match where:
        case ("clusters", _, "runtime_env", "env_vars", _) | ("clusters", _, "tags", _) | ("env_vars", _):
            return True
        case ("clusters", int(), "name"):
            return True
    return False
