"""One picture of all targets: how far each measured value is on the right side of its target, or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from benchmarks.measure import Line, Report

ROW, TEXT, BARS, EDGE = 26, 430, 360, 20
#: The axis goes from a tenth of a target to a hundred times.
LOW, HIGH = -1.0, 2.0


def as_svg(reports: Sequence[Report]) -> str:
    """Draw a bar for each line with a target; the middle line is the target itself."""
    lines = [(report.name, line) for report in reports for line in report.lines if line.met is not None]
    height = ROW * (len(lines) + 1) + EDGE
    width = TEXT + BARS + 100
    target_x = _x(1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<line x1="{target_x}" y1="{EDGE}" x2="{target_x}" y2="{height}" stroke="#555"/>',
        f'<text x="{target_x}" y="14" text-anchor="middle">target</text>',
    ]
    for number, (name, line) in enumerate(lines):
        parts += _bar(f"{name}: {line.what}", line, y=EDGE + ROW * number)
    return "\n".join([*parts, "</svg>", ""])


def _bar(label: str, line: Line, *, y: float) -> list[str]:
    distance = margin(line)
    x, target_x = _x(distance), _x(1.0)
    colour = "#2a7" if line.met else "#c44"
    return [
        f'<text x="{TEXT - 8}" y="{y + 17}" text-anchor="end">{escape(label)}</text>',
        f'<rect x="{min(x, target_x)}" y="{y + 5}" width="{max(1.0, abs(x - target_x))}" height="{ROW - 10}" '
        f'fill="{colour}"/>',
        f'<text x="{max(x, target_x) + 6}" y="{y + 17}">{line.value:.3g} {escape(line.unit)}</text>',
    ]


def margin(line: Line) -> float:
    """Return how many times better than its target a value is; below 1: it misses it."""
    if line.at_least is not None:
        return line.value / line.at_least
    assert line.at_most is not None
    if line.at_most == 0:
        return 1.0 if line.value == 0 else 10**LOW
    return line.at_most / line.value if line.value else 10**HIGH


def _x(distance: float) -> float:
    place = min(HIGH, max(LOW, math.log10(max(distance, 1e-9))))
    return round(TEXT + BARS * (place - LOW) / (HIGH - LOW), 1)
