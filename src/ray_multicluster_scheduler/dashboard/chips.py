"""Small marks: states, health, times that browsers keep current, bars of resources, curves, colours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.words import Words
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.resources import GIB, plus
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.views import ClusterView


class StateChip(ui.label):
    """The state of a job or a cluster, in its colour."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self._page = page
        self._word = ""
        self.classes("state")

    def show(self, word: str) -> StateChip:
        """Show a state by its name: of a job, a cluster's health, or DRAINED."""
        if word != self._word:
            self.classes(remove=f"state-{self._word}", add=f"state-{word}")
            self.set_text(state_text(self._page, word))
            self._word = word
        return self


def state_text(page: Page, word: str) -> str:
    """Return the name of a state of a job or a cluster for people."""
    if word in JobState.__members__:
        return page.words.known(f"states.{word}", word)
    return page.words.known(f"health.{word}", word)


def health_word(health: Health, *, drained: bool) -> str:
    """Return what to show of a cluster in one word: one that is drained and healthy is drained."""
    return "DRAINED" if drained and health is Health.HEALTHY else health.value


class When(ui.element):
    """A time, relative to now (`ago`) or absolute (`clock`, `moment`, `hour`), as the browser writes it."""

    def __init__(self, at: float | None = None, *, style: str = "ago") -> None:
        super().__init__("time")
        self.props(f"data-style={style}")
        self.show(at)

    def show(self, at: float | None) -> When:
        """Show this time; None: nothing."""
        text = "" if at is None else f"{at:.3f}"
        if self._props.get("data-at") != text:
            self._props["data-at"] = text
            self.update()
        return self


class Lasting(ui.element):
    """How long something has lasted, and still lasts where it has no end."""

    def __init__(self, begun: float | None = None, ended: float | None = None) -> None:
        super().__init__("time")
        self.show(begun, ended)

    def show(self, begun: float | None, ended: float | None) -> Lasting:
        """Show the time between these; None as a beginning: nothing."""
        self._props["data-from"] = "" if begun is None else f"{begun:.3f}"
        self._props["data-to"] = "" if ended is None else f"{ended:.3f}"
        self.update()
        return self


# Amounts of resources as people write them.


#: Ray counts these in bytes.
_IN_BYTES = frozenset({"memory", "object_store_memory"})
_FIRST = ("CPU", "GPU", "memory")
#: Ray gives each node a resource of its own name, which says nothing to people.
_OF_A_NODE = "node:"


def number(name: str, value: float) -> str:
    """Return an amount without its unit."""
    return f"{value / GIB:.1f}" if name in _IN_BYTES else f"{value:g}"


def amount(name: str, value: float) -> str:
    """Return an amount with its unit: memory in GiB."""
    return f"{number(name, value)} GiB" if name in _IN_BYTES else number(name, value)


def resource_name(words: Words, name: str) -> str:
    """Return what people call a resource."""
    return words.known(f"resources.{name}", name)


def resources_text(words: Words, resources: Mapping[str, float]) -> str:
    """Return resources in one line: CPU, GPU and memory first, the others by name."""
    shown = [name for name in resources if not name.startswith(_OF_A_NODE)]
    shown.sort(key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    return " · ".join(f"{resource_name(words, name)} {amount(name, resources[name])}" for name in shown)


# How full a cluster is: for each resource what Ray uses, what jobs have reserved besides, the rest.


#: Shown on a card, if a cluster has them. `memory` is in bytes.
SHOWN = ("CPU", "GPU", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One resource of one cluster. What is reserved counts from where the used part ends."""

    name: str
    total: float
    used: float
    reserved: float

    @property
    def free(self) -> float:
        """What neither Ray uses nor a job has reserved."""
        return max(0.0, self.total - self.used - self.reserved)


def shares(cluster: ClusterView) -> tuple[Share, ...]:
    """Return the resources of a cluster that are worth a bar; none: nothing is known of them.

    What jobs of a scheduler, ours or another one, have claimed is reserved for them, whether they use it or
    not: so reserved is what they have claimed and Ray does not count as used.
    """
    claimed = plus(cluster.claimed, cluster.claimed_by_others)
    total: Mapping[str, float] = cluster.total or {}
    used: Mapping[str, float] = cluster.used or {}
    return tuple(
        Share(
            name=name,
            total=total[name],
            used=min(used.get(name, 0.0), total[name]),
            reserved=max(0.0, min(claimed.get(name, 0.0), total[name]) - used.get(name, 0.0)),
        )
        for name in SHOWN
        if total.get(name)
    )


class ResourceBar(ui.element):
    """One bar with its numbers; `short`: in a column that says what it is of."""

    def __init__(self, page: Page, name: str, *, short: bool = False) -> None:
        super().__init__("div")
        self._page = page
        self._name = name
        self._short = short
        with self:
            with ui.element("div").classes("line spread"):
                if not short:
                    ui.label(page.t(f"resources.{name}_bar"))
                self._numbers = ui.label().classes("quiet")
            with ui.element("div").classes("bar").props("role=img") as self._bar:
                self._used = ui.element("div").classes("bar-used")
                self._reserved = ui.element("div").classes("bar-reserved")

    def show(self, share: Share) -> None:
        """Show how it is now."""
        name, text = self._name, self._page.t
        numbers = text(
            "resources.numbers",
            used=number(name, share.used),
            reserved=number(name, share.reserved),
            free=number(name, share.free),
        )
        if self._bar.props.get("aria-label") != numbers:
            taken = f"{number(name, share.used + share.reserved)} / {number(name, share.total)}"
            self._numbers.set_text(taken if self._short else numbers)
            self._bar.props["aria-label"] = self._bar.props["title"] = numbers
            self._bar.update()
            self._used.style(f"width: {100 * share.used / share.total:.1f}%")
            self._reserved.style(f"width: {100 * share.reserved / share.total:.1f}%")


# Colours of charts. White text can be read on each, and each stands out on a light and a dark page.


#: Texts and lines.
QUIET = "#7b8494"
#: By the state of a job or an attempt; `static/dashboard.css` has the same hues for chips.
STATE_COLOURS = {
    "QUEUED": "#64748b",
    "PLACED": "#0369a1",
    "SUBMITTED": "#0369a1",
    "RUNNING": "#2563eb",
    "UNREACHABLE": "#b45309",
    "LOST": "#9333ea",
    "SUCCEEDED": "#15803d",
    "FAILED": "#dc2626",
    "STOPPED": "#64748b",
}
PALETTE = (
    "#2563eb",
    "#c2410c",
    "#0f766e",
    "#9333ea",
    "#be123c",
    "#4d7c0f",
    "#c026d3",
    "#0e7490",
    "#a16207",
    "#64748b",
)


def user_colours(users: Collection[str]) -> dict[str, str]:
    """Return a colour for each user, two of whom share one only when there are more users than colours.

    A user has the same colour every time, unless another one came first.
    """
    found: dict[str, str] = {}
    for user in sorted(users):
        first = crc32(user.encode()) % len(PALETTE)
        order = PALETTE[first:] + PALETTE[:first]
        free = (colour for colour in order if colour not in found.values())
        found[user] = next(free, order[0])
    return found


# A small curve of the last measurements, without axes.


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
