"""Turns words of a command line into fields of a job request; each error names its option."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.errors import InvalidRequest, InvalidRuntimeEnv
from ray_multicluster_scheduler.model.job_options import OnUnreachable
from ray_multicluster_scheduler.model.resources import BYTES_FROM, GIB
from ray_multicluster_scheduler.packages.runtime_env import read_yaml
from ray_multicluster_scheduler.text import seconds_of


def entrypoint_of(words: Sequence[str]) -> str:
    """Return the shell command: one word is a whole command line already, several are quoted and joined."""
    return words[0] if len(words) == 1 else shlex.join(words)


def json_object(option: str, text: str | None) -> dict[str, Any] | None:
    """Parse an option that holds a JSON object; an error does not repeat it, as it may hold secrets."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"{option} is not valid JSON: {error.msg}, at line {error.lineno}, column {error.colno}"
        ) from None
    if not isinstance(value, dict):
        raise InvalidRequest(
            f'{option} must be a JSON object such as \'{{"key": "value"}}\', not {json_kind(value)}'
        )
    return value


def runtime_env_of(file: Path | None, text: str | None, working_dir: str | None) -> Mapping[str, Any] | None:
    """Put together the job's own environment as `ray job submit` does: `--working-dir` takes precedence."""
    if file is not None and text is not None:
        raise InvalidRequest("give the environment once: with --runtime-env or with --runtime-env-json")
    env = _read_yaml(file) if file is not None else json_object("--runtime-env-json", text)
    return env if working_dir is None else {**(env or {}), "working_dir": working_dir}


def env_of(words: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Read `--env NAME=VALUE` and `--env NAME`; an error repeats no word, as it may be a secret."""
    found = {}
    for number, word in enumerate(words, start=1):
        name, has_value, value = word.partition("=")
        if not name or (not has_value and name not in environ):
            raise InvalidRequest(
                f"--env number {number} is not of the form NAME=VALUE, and no variable here has that name"
            )
        found[name] = value if has_value else environ[name]
    return found


def resources_of(cpus: float | None, gpus: float | None, memory_gib: float | None) -> dict[str, float] | None:
    """Return what the whole job claims; None if no option says so."""
    if memory_gib is not None and memory_gib >= BYTES_FROM:
        memory_gib *= GIB  # from here on a request counts bytes
    given = {"CPU": cpus, "GPU": gpus, "memory": memory_gib}
    return {name: amount for name, amount in given.items() if amount is not None} or None


def on_unreachable_of(word: str) -> OnUnreachable:
    """Read `wait`, `fail` or a length of time; a plain number is in seconds."""
    if word == "wait":
        return "wait"
    if word == "fail":
        return "fail"
    try:
        return seconds_of(word, plain=True)
    except ValueError:
        raise InvalidRequest(
            "--on-unreachable wants wait, fail or the time after which the job is started elsewhere, such as "
            f"10m, not {word!r}"
        ) from None


def json_kind(value: object) -> str:
    """Name what a JSON document is."""
    if value is None:
        return "null"
    return {bool: "true or false", str: "text", list: "a list"}.get(type(value), "a number")


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        value = read_yaml(file)
    except InvalidRuntimeEnv as problem:
        raise InvalidRuntimeEnv(f"--runtime-env: {problem}") from None
    if not isinstance(value, dict):
        raise InvalidRuntimeEnv(f"--runtime-env: {file} must hold a mapping such as `pip: [requests]`")
    return value
