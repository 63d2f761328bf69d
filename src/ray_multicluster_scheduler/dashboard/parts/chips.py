"""Small marks: the state of a job, the health of a cluster, and times that the browser keeps up to date."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.states import JobState


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
