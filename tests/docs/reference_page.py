"""Writes docs/reference/python.md from the signatures and docstrings of the public functions.

python -m tests.docs.reference_page
"""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray_multicluster_scheduler
from ray_multicluster_scheduler import runtime

WIDTH = 100
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"

#: In the order in which people meet them.
SECTIONS = {
    "Setting up": ["initialize_scheduler_environment", "get_unified_scheduler"],
    "Submitting": ["submit_job", "submit_jobs", "plan_job", "retry_job"],
    "Looking": [
        "job",
        "jobs",
        "get_job_status",
        "get_job_info",
        "get_job_logs",
        "tail_job_logs",
        "list_jobs",
        "explain",
    ],
    "Waiting, stopping, deleting": [
        "wait_for_all_jobs",
        "stop_job",
        "delete_job",
        "graceful_shutdown_on_keyboard_interrupt",
    ],
    "Inside a job": ["set_result"],
    "Tasks and actors": [
        "submit_task",
        "submit_actor",
        "submit_actor_async",
        "submit_actor_pool",
        "get_task_status",
        "get_task_result",
        "get_actor_status",
        "get_actor_result",
        "list_actors",
        "cancel_task",
        "kill_actor",
        "explain_task",
    ],
    "Maps": ["map_over_clusters", "put_everywhere"],
    "Clusters": ["list_clusters", "drain", "undrain"],
    "Plain Ray": ["init_ray"],
}
OBJECTS = [
    ray_multicluster_scheduler.Job,
    ray_multicluster_scheduler.Jobs,
    ray_multicluster_scheduler.JobInfo,
    ray_multicluster_scheduler.ActorPool,
    ray_multicluster_scheduler.MultiClusterExecutor,
]
SCHEDULER = ["list_clusters", "cluster_details", "stop"]

HEAD = """\
# Python API

```python
from ray_multicluster_scheduler import submit_job, wait_for_all_jobs
```

All functions block and may be called from any thread. `from ray_multicluster_scheduler import aio` has the
same ones for asyncio: `await aio.submit_job(...)`. The first call reads the configuration, unless
`initialize_scheduler_environment` did. How to use [jobs as objects](../python.md). The [errors](errors.md)
have a page of their own. This page is written from the docstrings.
"""


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for title, names in SECTIONS.items():
        parts.append(f"\n## {title}\n")
        parts += [_entry(name, getattr(ray_multicluster_scheduler, name)) for name in names]
    for kind in OBJECTS:
        parts.append(f"\n## {kind.__name__}\n\n{_text(kind)}\n")
        parts += [
            _member(f"{kind.__name__}.{name}", each) for name, each in vars(kind).items() if name[0] != "_"
        ]
    parts.append(
        "\n## The handle\n\n`initialize_scheduler_environment` and `get_unified_scheduler` return a "
        "`Scheduler`. These are for users:\n"
    )
    parts += [_entry(f"Scheduler.{name}", getattr(runtime.Scheduler, name)) for name in SCHEDULER]
    return "".join(parts)


def _entry(name: str, function: Callable[..., Any]) -> str:
    return f"\n### {name}\n\n```text\n{_signature(name, function)}\n```\n\n{_text(function)}\n"


def _member(name: str, member: Callable[..., Any] | property) -> str:
    if isinstance(member, property):
        assert member.fget is not None
        kind = inspect.signature(member.fget).return_annotation
        return f"\n### {name}\n\n```text\n{name}: {kind}\n```\n\n{_text(member.fget)}\n"
    return _entry(name, member)


def _signature(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    arguments = list(_arguments(signature))
    line = f"{name}({', '.join(arguments)}) -> {signature.return_annotation}"
    if len(line) <= WIDTH:
        return line
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f"{name}(\n{lines}) -> {signature.return_annotation}"


def _arguments(signature: inspect.Signature) -> Iterator[str]:
    """Write each argument as in the source; annotations are text already."""
    keyword_only = False
    for each in signature.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            yield "*"
        stars = "**" if each.kind is each.VAR_KEYWORD else ""
        default = "" if each.default is each.empty else f" = {each.default!r}"
        yield f"{stars}{each.name}: {each.annotation}{default}"


def _text(function: Callable[..., Any]) -> str:
    """Turn a docstring into Markdown: `Args:` and `Raises:` become lists."""
    lines = (inspect.getdoc(function) or "").splitlines()
    out: list[str] = []
    for line in lines:
        if line in {"Args:", "Raises:"}:
            out += [f"**{line.removesuffix(':')}**", ""]
        elif item := re.fullmatch(r"    (\w+): (.*)", line):
            out.append(f"- `{item[1]}`: {item[2]}")
        else:
            out.append(re.sub(r"^ {8}", "  ", line))
    return _linked("\n".join(out))


def _linked(text: str) -> str:
    """Turn the names of pages into links."""
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", text)


if __name__ == "__main__":
    PAGE.write_text(page())
