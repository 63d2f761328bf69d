"""Writes public_names.txt: each public name of the package with its signature, as programs of users have it.

To change the list on purpose, write it anew with `python -m tests.compat.public_names`, and say in
CHANGELOG.md what became of each line that is gone: users have it in their programs.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("public_names.txt")

#: Modules whose public names users import.
MODULES = (
    "ray_multicluster_scheduler",
    "ray_multicluster_scheduler.aio",
    "ray_multicluster_scheduler.app.client_api",
    "ray_multicluster_scheduler.app.client_api.submit_job",
    "ray_multicluster_scheduler.app.client_api.unified_scheduler",
    "ray_multicluster_scheduler.common.exception",
    "ray_multicluster_scheduler.errors",
)
OURS = "ray_multicluster_scheduler"


def public_names() -> str:
    """Return the list."""
    return "".join(f"{line}\n" for module in MODULES for line in _lines_of(module))


def _lines_of(name: str) -> Iterator[str]:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None) or [each for each in vars(module) if _is_public(module, each)]
    yield f"# {name}"
    for each in sorted(names):
        yield from _told(each, getattr(module, each))


def _is_public(module: Any, name: str) -> bool:
    thing = getattr(module, name)
    made_here = str(getattr(thing, "__module__", None)).startswith(OURS)
    return not name.startswith("_") and callable(thing) and made_here


def _told(name: str, thing: Any) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield f"{'async ' if inspect.iscoroutinefunction(thing) else ''}{name}{_signature(thing)}"
        return
    yield f"class {name}({', '.join(base.__name__ for base in thing.__bases__)})"
    for member_name, member in sorted(vars(thing).items()):
        if member_name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"    {name}.{member_name}: {inspect.signature(member.fget).return_annotation}"  # type: ignore[arg-type]
        elif inspect.isfunction(member):
            yield f"    {name}.{member_name}{_signature(member)}"


def _signature(thing: Any) -> str:
    """Write it as in the source: annotations are text already, and a default may be an object."""
    told = str(inspect.signature(thing)).replace("'", "") if callable(thing) else ""
    return re.sub(r" at 0x[0-9a-f]+", "", told)


if __name__ == "__main__":
    LIST.write_text(public_names())
