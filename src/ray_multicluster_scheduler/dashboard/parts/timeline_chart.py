"""The drawn timeline. What is drawn is worked out here; `timeline_chart.js` puts it on the canvas."""

from __future__ import annotations

from typing import Any

from nicegui.element import Element
from nicegui.elements import echart  # noqa: F401 - makes its library known, which the component uses

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import state_text
from ray_multicluster_scheduler.dashboard.parts.colours import STATE_COLOURS

_WORDS = (
    "user",
    "cluster",
    "state",
    "attempt",
    "placed",
    "started",
    "ended",
    "duration",
    "claimed",
    "no_cpus",
)


class TimelineChart(Element, component="timeline_chart.js"):
    """Bars of attempts in lanes, cluster by cluster, below a curve of how full the cluster is.

    NiceGUI's own chart sends all options for each change, and would lose what a person has zoomed to.
    """

    def __init__(self, page: Page, colouring: str) -> None:
        super().__init__()
        self.classes("timeline-chart")
        self._props |= {
            "colouring": colouring,
            "words": {word: page.t(f"timeline.{word}") for word in _WORDS},
            "states": {word: state_text(page, word) for word in STATE_COLOURS},
            "drawing": None,
            "range": None,
            "role": "img",
        }

    def show(self, drawing: dict[str, Any], since: float, until: float, *, label: str) -> None:
        """Draw this between these times. If nothing but the time has changed, only that is sent.

        `label` says in words what is drawn, for those who do not see it.
        """
        between = [round(1000 * since), round(1000 * until)]
        if self._props["drawing"] == drawing:
            self.run_method("move_to", between)
            return
        self._props |= {"drawing": drawing, "range": between, "aria-label": label}
        self.update()

    def colour_by(self, colouring: str) -> None:
        """Colour the bars by `state` or by `user`."""
        self._props["colouring"] = colouring
        self.update()
