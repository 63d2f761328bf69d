"""The `env_vars` of a runtime_env: parsing the forms that people write, and merging two layers.

Ray expands a value on the node, when a worker starts. `${NAME}` becomes the node's value or an empty text.
`$NAME` becomes the node's value, but stays literal if the node has none. A search path that ends in
`$PYTHONPATH` could then name a directory of that name, so we write it with braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ray_multicluster_scheduler.errors import InvalidRuntimeEnv

#: Lists of directories: several lines are joined, and `${NAME}` inside NAME stands for the cluster's value.
SEARCH_PATHS = ("LD_LIBRARY_PATH", "PATH", "PYTHONPATH")
#: Every job gets these variables about itself. They are set last, so that a job can rely on them.
CLUSTER_VAR = "RAY_MULTICLUSTER_CLUSTER"
#: The same value under the name that programs for the older package read.
OLDER_CLUSTER_VAR = "RAY_MULTICLUSTER_CURRENT_CLUSTER"
SUBMISSION_ID_VAR = "RAY_MULTICLUSTER_SUBMISSION_ID"
ATTEMPT_VAR = "RAY_MULTICLUSTER_ATTEMPT"
#: The index of a job of an array. It is one of the job's own variables, so that a retry has it too.
ARRAY_INDEX_VAR = "RAY_MULTICLUSTER_ARRAY_INDEX"
#: Address of the server that accepted the job, unless the job sets another one, and the token for it.
ADDRESS_VAR = "RAY_MULTICLUSTER_ADDRESS"
TOKEN_VAR = "RAY_MULTICLUSTER_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE_VAR = "RAY_MULTICLUSTER_TOKEN_FILE"  # noqa: S105 - the name of a variable
#: The URI of this package, where it travels with the job.
PACKAGE_VAR = "RAY_MULTICLUSTER_PACKAGE"
#: The name by which programs import this package, and an older one of the same name.
PACKAGE_NAME = "ray_multicluster_scheduler"
RESERVED = frozenset({CLUSTER_VAR, OLDER_CLUSTER_VAR, SUBMISSION_ID_VAR, ATTEMPT_VAR, PACKAGE_VAR})

_NAME = re.compile(r"[^\s=\0]+")


def parse_env_vars(value: object) -> dict[str, str]:
    """Return `env_vars` as a mapping of text. Values may be secrets, so no message shows one."""
    pairs = value.items() if isinstance(value, Mapping) else _pairs_of_items(value)
    parsed: dict[str, str] = {}
    for name, content in pairs:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidRuntimeEnv("a name is empty, or is not text without spaces and '='")
        if name in RESERVED:
            raise InvalidRuntimeEnv(f"{name} is set by the scheduler for every job; use another name")
        if name in parsed:
            raise InvalidRuntimeEnv(f"{name} is given twice; keep one of them")
        text = _text(name, content)
        parsed[name] = _search_path(name, _directories(text)) if name in SEARCH_PATHS else text
    return parsed


def with_env_vars(runtime_env: Any, added: Mapping[str, str]) -> Any:
    """Return a job's runtime_env with more variables, unchecked; they replace others of their names."""
    if not added or not isinstance(runtime_env, (Mapping, type(None))):
        return runtime_env
    given = (runtime_env or {}).get("env_vars") or {}
    if isinstance(given, (list, tuple)):
        kept = [item for item in given if str(item).partition("=")[0] not in added]
        return {**(runtime_env or {}), "env_vars": [*kept, *(f"{name}={added[name]}" for name in added)]}
    if not isinstance(given, Mapping):
        return runtime_env
    return {**(runtime_env or {}), "env_vars": {**given, **added}}


def layer_env_vars(cluster: Mapping[str, str], job: Mapping[str, str]) -> dict[str, str]:
    """Merge the variables; the job's win. A search path of the job may include the cluster's."""
    layered = {**cluster, **job}
    for name in SEARCH_PATHS:
        if name in cluster and name in job:
            inherited = _directories(cluster[name])
            items = [
                part
                for item in _directories(job[name])
                for part in (inherited if item == f"${{{name}}}" else [item])
            ]
            layered[name] = _search_path(name, items)
    return layered


def checkouts_on_path(env_vars: Mapping[str, str]) -> list[str]:
    """Return the directories of PYTHONPATH that have the name of this package.

    The older package of the same name lies in such a checkout, and a program that gets PYTHONPATH imports it.
    """
    entries = _directories(env_vars.get("PYTHONPATH", ""))
    return [entry for entry in entries if entry.rstrip("/").rpartition("/")[2] == PACKAGE_NAME]


def _pairs_of_items(value: object) -> list[tuple[str, str]]:
    if not isinstance(value, (list, tuple)):
        raise InvalidRuntimeEnv(f"must be a mapping or a list of KEY=VALUE items, not {type(value).__name__}")
    pairs = []
    for number, item in enumerate(value, start=1):
        if not isinstance(item, str) or "=" not in item:
            raise InvalidRuntimeEnv(f"item {number} is not of the form KEY=VALUE")
        name, _, content = item.partition("=")
        pairs.append((name, content))
    return pairs


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        raise InvalidRuntimeEnv(f"{name} is a boolean; write the text that the program should see, in quotes")
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str):
        what = "has no value" if value is None else f"is a {type(value).__name__}"
        raise InvalidRuntimeEnv(f"{name} {what}; give text in quotes (empty: '')")
    if "\0" in value:
        raise InvalidRuntimeEnv(f"{name} contains a NUL character, which no environment can hold")
    return value


def _directories(text: str) -> list[str]:
    return [item.strip() for item in text.replace("\n", ":").split(":")]


def _search_path(name: str, items: Iterable[str]) -> str:
    """Join the items without duplicates and without empty ones, which would mean the current directory."""
    braced = (f"${{{name}}}" if item == f"${name}" else item for item in items)
    return ":".join(dict.fromkeys(item for item in braced if item))
