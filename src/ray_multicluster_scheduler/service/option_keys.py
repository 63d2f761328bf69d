"""Our options as keys of a job's metadata: `raymc.priority`, `raymc.cluster`, ...

Ray's own clients can send only the fields of Ray's interface, of which metadata is free-form. The keys stay
in the metadata, so every list shows them as they were sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS, JobOption, OnUnreachable
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.text.spelling import nearest
from ray_multicluster_scheduler.text.units import bytes_of, seconds_of

PREFIX = "raymc."


@dataclass(frozen=True, slots=True)
class OptionKey:
    """One key: the field of `JobRequest` that it sets, and how its text is read."""

    field: str
    #: Raises ValueError, TypeError or KeyError.
    read: Callable[[str], Any]
    #: The accepted values, for the error message.
    wants: str


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(text)
    return value


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))


def _yes_or_no(text: str) -> bool:
    return {"true": True, "false": False}[text.casefold()]


def _word_or_seconds(text: str) -> str | float:
    return text if text in {"wait", "fail"} else _seconds(text)


def _seconds(text: str) -> float:
    return seconds_of(str(text), plain=True)


def _memory(text: str) -> dict[str, float]:
    """Read a size. A plain number is as everywhere: GiB, or bytes from 2**20."""
    try:
        return {"memory": float(text)}
    except ValueError:
        return {"memory": bytes_of(str(text), plain=GIB) / GIB}


def _amount_of(resource: str) -> OptionKey:
    return OptionKey("resource_requirements", lambda text: {resource: float(text)}, "a number")


#: How the text of an option is read, by its kind, and what is wanted.
_READERS: tuple[tuple[Any, Callable[[str], Any], str], ...] = (
    (str | None, str, "a text"),
    (int, int, "a whole number"),
    (float | None, _seconds, "a time such as 90s, 10m or 1h, or a number of seconds"),
    (bool, _yes_or_no, "true or false"),
    (tuple[str, ...], _words, "words with commas between them"),
    (OnUnreachable, _word_or_seconds, "wait, fail or a time such as 10m"),
)


def _option_key(option: JobOption) -> OptionKey:
    return next(OptionKey(option.name, read, wants) for kind, read, wants in _READERS if kind == option.kind)


#: Every option of a job that Ray's own interface has no place for.
KEYS: Mapping[str, OptionKey] = {
    "raymc.cpus": _amount_of("CPU"),
    "raymc.gpus": _amount_of("GPU"),
    "raymc.memory": OptionKey("resource_requirements", _memory, "a size such as 4GiB, or a number"),
    "raymc.resources": OptionKey("resource_requirements", _json_object, "a JSON object of numbers"),
    "raymc.job_id": OptionKey("job_id", str, "a text"),
    **{
        f"{PREFIX}{option.word}": _option_key(option)
        for option in JOB_OPTIONS
        if not option.name.startswith("entrypoint_")
    },
}


def with_options(
    given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments of a request with those that its metadata carries, and the key of each of these.

    A field that was given beside its key must say the same; `defaults` are what says nothing.
    """
    options, keys = _options(given.get("metadata"))
    merged = dict(given)
    for field, value in options.items():
        beside = given.get(field)
        if beside is None or beside == defaults.get(field):
            merged[field] = value
        elif field == "resource_requirements" and isinstance(beside, Mapping):
            merged[field] = _together(dict(beside), value, keys[field])
        elif not _same(beside, value):
            raise InvalidRequest(f"{field} and the metadata key {keys[field]!r} say different things")
    return merged, keys


def without_keys(metadata: Any, fields: Mapping[str, Any]) -> Any:
    """Return metadata without the keys of these fields, which are about to be replaced."""
    if not isinstance(metadata, Mapping):
        return metadata
    return {key: value for key, value in metadata.items() if key not in KEYS or KEYS[key].field not in fields}


def _options(metadata: Any) -> tuple[dict[str, Any], dict[str, str]]:
    options: dict[str, Any] = {}
    keys: dict[str, str] = {}
    if not isinstance(metadata, Mapping):
        return options, keys
    for key, text in metadata.items():
        if not isinstance(key, str) or not key.startswith(PREFIX):
            continue
        option = _known(key)
        value = _read(key, option, text)
        if option.field in options:
            options[option.field] = _together(options[option.field], value, key)
            keys[option.field] += f", {key}"
        else:
            options[option.field], keys[option.field] = value, key
    return options, keys


def _known(key: str) -> OptionKey:
    if key not in KEYS:
        guess = nearest(key, KEYS)
        hint = f"did you mean {guess!r}?" if guess else f"there are {', '.join(KEYS)}"
        raise InvalidRequest(
            f"metadata keys that begin with {PREFIX!r} are options of ours, and {key!r} is none; {hint}"
        )
    return KEYS[key]


def _read(key: str, option: OptionKey, text: Any) -> Any:
    try:
        return option.read(text)
    except (ValueError, TypeError, KeyError, RecursionError):
        said = ascii(text)[:80]
        raise InvalidRequest(f"the metadata key {key!r} wants {option.wants}, not {said}") from None


def _together(amounts: dict[str, Any], more: Mapping[str, Any], key: str) -> dict[str, Any]:
    for name, amount in more.items():
        if amounts.setdefault(name, amount) != amount:
            raise InvalidRequest(
                f"the metadata key {key!r} gives another amount of {name} than is given beside it"
            )
    return amounts


def _same(beside: Any, value: Any) -> bool:
    return bool(tuple(beside) == value if isinstance(value, tuple) else beside == value)
