"""Finds what looks at text in the packages: compiled patterns, and functions that parse."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import ray_multicluster_scheduler

PACKAGE = Path(ray_multicluster_scheduler.__file__).parent
#: Packages beside it, which are read as well.
BESIDE = ("raymc_pipeline", "raymc_relay")
#: Not read here: fakes and a demonstration, for people who try this out on their own machine.
LEFT_OUT = ("testing", "demo")
METHODS = frozenset({"match", "fullmatch", "search", "sub", "split", "finditer", "findall"})
#: Calls by which a function shows that it parses.
PARSERS = frozenset(
    {
        "FromString",
        "Requirement",
        "SimpleCookie",
        "SpecifierSet",
        "TypeAdapter",
        "Unpickler",
        "Version",
        "genops",
    }
    | {"ip_address", "literal_eval", "load", "loads", "parse_qs", "parse_qsl", "safe_load", "shlex", "unpack"}
    | {"unpack_from", "urlsplit", "validate_json"}
)


class Pattern(NamedTuple):
    """A compiled pattern of a module."""

    where: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax trees of all modules, by their paths; beside the package these begin with a name."""
    paths = {path.relative_to(PACKAGE): path for path in sorted(PACKAGE.rglob("*.py"))}
    for name in BESIDE:
        paths |= {
            path.relative_to(PACKAGE.parent): path for path in sorted((PACKAGE.parent / name).rglob("*.py"))
        }
    return {
        path.as_posix(): ast.parse(found.read_text())
        for path, found in paths.items()
        if path.parts[0] not in LEFT_OUT
    }


def patterns() -> Iterator[Pattern]:
    """Yield all patterns of all modules, with the methods by which they are used anywhere."""
    everywhere = _methods(trees().values())
    for path, tree in trees().items():
        if not any(_is_re(node) for node in ast.walk(tree)):
            continue
        here = _methods([tree])
        module = importlib.import_module(_module_name(path))
        for name, value in _own(module, tree).items():
            for place, pattern in _patterns_in(value, name):
                last = place.rpartition(".")[2]
                used = here if last.startswith("_") else everywhere
                methods = used.get(last, {"fullmatch", "search"})
                yield Pattern(f"{path}:{place}", pattern, frozenset(methods))


def inline_patterns() -> Iterator[str]:
    """Yield the functions in which patterns are made: these are parsers."""
    for path, tree in trees().items():
        for function, call in _calls(tree):
            if function and _is_re(call) and call.func.attr != "escape":  # type: ignore[attr-defined]
                yield f"{path}:{function}"


def parsers() -> Iterator[str]:
    """Yield the functions that parse text or bytes."""
    for path, tree in trees().items():
        for function, call in _calls(tree):
            called = call.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in PARSERS and function:
                yield f"{path}:{function}"


def _module_name(path: str) -> str:
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts if parts[0] in BESIDE else ["ray_multicluster_scheduler", *parts])


def _is_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
    )


def _own(module: ModuleType, tree: ast.Module) -> dict[str, Any]:
    """Return what a module itself defines by assignments."""
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return {name: getattr(module, name) for name in names if hasattr(module, name)}


def _patterns_in(value: Any, place: str) -> Iterator[tuple[str, re.Pattern[Any]]]:
    if isinstance(value, re.Pattern):
        yield place, value
    elif isinstance(value, tuple):
        names = getattr(value, "_fields", range(len(value)))
        for name, inner in zip(names, value, strict=True):
            yield from _patterns_in(inner, f"{place}.{name}")


def _methods(among: Iterable[ast.Module]) -> dict[str, set[str]]:
    """Return by which methods patterns are used, by the last part of their names."""
    found: dict[str, set[str]] = {}
    for tree in among:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                owner = node.value
                name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
                found.setdefault(name, set()).add(node.attr)
    return found


def _calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Yield each call with the function that it is in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            yield function, node
        inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        name = ".".join(filter(None, [function, node.name])) if inside else function  # type: ignore[attr-defined]
        yield from _calls(node, name)
