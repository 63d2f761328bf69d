"""A span of time that somebody chooses: when jobs came into their state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.errors import InvalidRequest

#: Since when, and until when; None: without this end.
Range = tuple[float | None, float | None]
ALWAYS: Range = (None, None)
_WORDS = ("when", "since", "until", "any", "hour", "day", "week", "night", "own")


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
        self._props["words"] = {word: page.t(f"times.{word}") for word in _WORDS}
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
