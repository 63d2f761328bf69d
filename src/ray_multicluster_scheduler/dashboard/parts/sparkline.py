"""A small curve of the last measurements, without axes."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

WIDTH, HEIGHT = 100.0, 24.0


def pieces(values: Sequence[float | None]) -> list[str]:
    """Return the points of each unbroken run of values, newest at the right; None makes a gap."""
    known = [value for value in values if value is not None]
    top, step = max(known, default=0.0) or 1.0, WIDTH / max(1, len(values) - 1)
    found: list[list[str]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            found.append([])
        else:
            found[-1].append(f"{index * step:.1f},{HEIGHT - 1 - (HEIGHT - 2) * value / top:.1f}")
    return [" ".join(run) for run in found if len(run) > 1]


class Sparkline(ui.element):
    """Shows a sequence as a curve; `label` says in words what it is."""

    def __init__(self) -> None:
        super().__init__("svg")
        self.classes("sparkline")
        self.props(f'viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio=none role=img')
        self._shown: list[str] = []

    def show(self, values: Sequence[float | None], label: str) -> None:
        """Draw these values."""
        drawn = pieces(values)
        if drawn == self._shown and self.props.get("aria-label") == label:
            return
        self._shown = drawn
        self.props["aria-label"] = label
        self.clear()
        with self:
            for points in drawn:
                ui.element("polyline").props(f'points="{points}"')
        self.update()
