"""The address of a list of jobs: which jobs it is about, so that the page can be sent to a colleague."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from nicegui import ui
from nicegui.events import GenericEventArguments

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.query import JobQuery

# A span of time that somebody chooses: when jobs came into their state.


#: Since when, and until when; None: without this end.
Range = tuple[float | None, float | None]
ALWAYS: Range = (None, None)
_RANGE_WORDS = ("when", "since", "until", "any", "hour", "day", "week", "night", "own")


def parse_range(given: Mapping[str, Any]) -> Range:
    """Return the range that `since` and `until` name, in seconds since the epoch; or `InvalidRequest`."""
    return _moment("since", given.get("since")), _moment("until", given.get("until"))


def range_words(since: float | None, until: float | None) -> dict[str, str]:
    """Return a range as an address has it."""
    return {name: f"{at:.0f}" for name, at in (("since", since), ("until", until)) if at is not None}


class TimeRange(ui.element, component="time_range.js"):
    """A choice of usual spans, and of any other. With `in_address` the browser keeps it in its address."""

    def __init__(
        self, page: Page, changed: Callable[[Range], Awaitable[None]], *, in_address: bool = False
    ) -> None:
        super().__init__()
        self._props["words"] = {word: page.t(f"times.{word}") for word in _RANGE_WORDS}
        self._props["inAddress"] = in_address

        async def told(event: GenericEventArguments) -> None:
            try:
                chosen = parse_range(event.args if isinstance(event.args, dict) else {})
            except InvalidRequest as problem:
                page.say(str(problem), problem=True)
            else:
                await changed(chosen)

        self.on("range", told)
        self.show(None, None)

    def show(self, since: float | None, until: float | None) -> None:
        """Show a span as chosen."""
        if (self._props.get("since", ""), self._props.get("until", "")) != (since, until):
            self._props["since"], self._props["until"] = since, until
            self.update()


def _moment(name: str, given: Any) -> float | None:
    """Return a moment of an address or of a browser, which may send anything."""
    if given is None or given == "":
        return None
    try:
        at = float(given)
    except (TypeError, ValueError):
        at = -1.0
    if not 0 <= at < 1e11:
        raise InvalidRequest(f"{name}: {str(given)[:40]!r} is no time; give seconds since the epoch")
    return float(int(at))


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
