"""The address of a list of jobs: which jobs it is about, so that the page can be sent to a colleague."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from ray_multicluster_scheduler.dashboard.parts.time_range import parse_range, range_words
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.query import JobQuery

PATH = "/jobs"
ROWS = 50
#: Filters that a person types or chooses, and those that only a link sets.
TYPED = ("text", "user", "tag", "group")
LINKED = ("head", "parent", "job_id", "wait_reason")
_WORDS = (*TYPED, "cluster", *LINKED, "cursor")
#: Filters that leave rows for several jobs as they are: such jobs have the same user.
_KEEPING_HEADS = ("user", "cursor")


def parse(pairs: Iterable[tuple[str, str]]) -> JobQuery:
    """Return what an address asks for. Other names are ignored; the last of one name wins."""
    states: dict[JobState, None] = {}
    words: dict[str, Any] = {}
    times: dict[str, str] = {}
    for name, value in pairs:
        if name == "state" and value:
            states[_state(value)] = None
        elif name in _WORDS and value.strip():
            words[name] = value.strip()
        elif name in ("since", "until"):
            times[name] = value.strip()
    words["changed_since"], words["changed_until"] = parse_range(times)
    return _listed(JobQuery(states=tuple(states) or None, limit=ROWS, **words))


def changed(query: JobQuery, **filters: Any) -> JobQuery:
    """Return the beginning of the list with other filters."""
    return _listed(replace(query, cursor=None, **filters))


def _listed(query: JobQuery) -> JobQuery:
    """Let one row stand for several jobs, unless a filter picks single ones out of them."""
    others: dict[str, Any] = dict.fromkeys(_KEEPING_HEADS)
    plain = JobQuery(limit=query.limit)
    return replace(query, heads_only=replace(query, heads_only=False, **others) == plain)


def address(query: JobQuery) -> str:
    """Return the address of this list."""
    pairs = [("state", state.value) for state in query.states or ()]
    pairs += [(name, value) for name in _WORDS if (value := getattr(query, name)) is not None]
    pairs += range_words(query.changed_since, query.changed_until).items()
    return f"{PATH}?{urlencode(pairs)}" if pairs else PATH


def is_filtered(query: JobQuery) -> bool:
    """Tell whether the address leaves some jobs out."""
    return not query.heads_only or query.user is not None or query.cursor is not None


def _state(word: str) -> JobState:
    if word.upper() not in JobState.__members__:
        raise InvalidRequest(f"state: there is no {word[:40]!r}; the states are {', '.join(JobState)}")
    return JobState[word.upper()]
