"""Small things that pages share: questions, headings, and texts to be copied."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page, Refresh
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.views import ClusterView

# Headings within a page.


def heading(text: str = "", *, level: int = 2) -> ui.label:
    """Return a heading; level 1 is the title of the page."""
    return ui.label(text).classes("raymc-subtitle").props(f"role=heading aria-level={level}")


# Asks whether something is meant.


async def confirmed(page: Page, question: str, *, about: str = "", do: str, colour: str = "negative") -> bool:
    """Return whether the visitor says yes. Escape is no.

    `about` says more, in lines; `do` is on the button that means yes.
    """
    with page.client.content, ui.dialog() as dialog, ui.card():
        dialog.props["aria-label"] = do
        heading(question).props("data-test=question")
        if about:
            ui.label(about).classes("lines")
        with ui.element("div").classes("line buttons"):
            no = ui.button(page.t("common.cancel"), on_click=lambda: dialog.submit("no"))
            no.props("flat no-caps autofocus data-test=cancel")
            yes = ui.button(do, color=colour, on_click=lambda: dialog.submit("yes"))
            yes.props("unelevated no-caps data-test=confirm")
    answer = await dialog
    dialog.delete()
    return bool(answer == "yes")


# Asks why a cluster is to get no new jobs, or whether it may get them again.


class DrainDialog(ui.dialog):
    """One dialog for all clusters of a page."""

    def __init__(self, page: Page, after: Refresh) -> None:
        super().__init__()
        self._page, self._after = page, after
        self._cluster: ClusterView | None = None
        self.props["aria-label"] = page.t("clusters.drain_dialog")
        with self, ui.card().classes("cluster-dialog"):
            self._title = heading()
            self._what = ui.label()
            self._reason = ui.input(page.t("clusters.reason")).props("outlined dense data-test=drain-reason")
            self._reason.classes("full-width").on("keydown.enter", self._do)
            with ui.element("div").classes("line buttons"):
                cancel = ui.button(page.t("common.cancel"), color=None, on_click=self.close)
                cancel.props("flat no-caps").classes("cluster-button")
                self._go = ui.button(on_click=self._do).props("no-caps data-test=drain-go")

    def ask(self, cluster: ClusterView) -> None:
        """Open the dialog for a cluster as it is shown now."""
        page, kind = self._page, "undrain" if cluster.drained else "drain"
        self._cluster = cluster
        self._title.set_text(page.t(f"clusters.{kind}_title", cluster=cluster.name))
        self._what.set_text(page.t(f"clusters.{kind}_text"))
        self._go.set_text(page.t(f"clusters.{kind}"))
        self._reason.set_value("")
        self._reason.set_visibility(not cluster.drained)
        self.open()

    async def _do(self) -> None:
        if self._cluster is None:
            return
        name, drained, reason = self._cluster.name, not self._cluster.drained, self._reason.value.strip()
        self.close()
        done = self._page.t("clusters.drain_done" if drained else "clusters.undrain_done", cluster=name)
        await self._page.act(
            Role.OPERATE,
            lambda service: service.set_drained(name, drained=drained, reason=reason),
            done=done,
        )
        await self._page.now(self._after)


# A text to be taken away, with a button that copies it (`static/dashboard.js`).


class CopyBlock(ui.element):
    """Shows a text as it is. `what` names it for those who cannot see it; `wrap` breaks long lines."""

    def __init__(self, page: Page, what: str, text: str = "", *, wrap: bool = False) -> None:
        super().__init__("div")
        self.classes("copy-block")
        with self:
            self._shown = ui.label(text).classes("copy-text mono").props("tabindex=0 role=region")
            self._shown.props["aria-label"] = what
            if wrap:
                self._shown.classes("copy-wrap")
            button = ui.button(page.t("common.copy"), icon="content_copy", color=None)
            button.classes("copy-button").props("flat dense no-caps")
            button.props["aria-label"] = f"{page.t('common.copy')}: {what}"
            button.props["data-copied"] = page.t("common.copied")

    def show(self, text: str) -> None:
        """Show another text."""
        self._shown.set_text(text)
