"""How full a cluster is: for each resource what Ray uses, what jobs have reserved besides, the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.resource_text import number
from ray_multicluster_scheduler.model.resources import plus
from ray_multicluster_scheduler.service.views import ClusterView

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
