"""What may be done about a job: stop, run again, submit a similar one, delete."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.views import JobView

REPEATABLE = frozenset({JobState.FAILED, JobState.STOPPED})


def job_address(submission_id: str) -> str:
    """Return where a job is shown."""
    return f"/jobs/{quote(submission_id, safe='')}"


def actions_of(job: JobView, *, session: bool) -> frozenset[str]:
    """Return what makes sense in the state of a job."""
    found = {"delete"} if job.final else {"stop"}
    if not session:
        found |= {"clone"}
        if job.state in REPEATABLE:
            found |= {"retry"}
    return frozenset(found)


class JobActions(ui.element):
    """The buttons. Whoever may not use them sees none."""

    def __init__(self, page: Page, submission_id: str) -> None:
        super().__init__("div")
        self.classes("line actions")
        self._page = page
        self._id = submission_id
        self._job: JobView | None = None
        self._buttons: dict[str, ui.element] = {}
        if not page.visitor.may(Role.SUBMIT):
            return
        with self:
            self._button("stop", "stop", self._stop).classes("danger")
            self._button("retry", "replay", self._retry)
            clone = self._button("clone", "content_copy")
            clone.props["href"] = f"/submit?from={quote(submission_id, safe='')}"
            self._button("delete", "delete", self._delete).classes("danger")

    def show(self, job: JobView, *, session: bool) -> None:
        """Show what may be done now."""
        self._job = job
        sensible = actions_of(job, session=session)
        for name, button in self._buttons.items():
            button.set_visibility(name in sensible)
        stop = self._buttons.get("stop")
        if isinstance(stop, ui.button):
            stop.set_text(self._page.t("job.stopping" if job.stopping else "job.stop"))
            stop.set_enabled(not job.stopping)

    def hide(self) -> None:
        """Show nothing: the job is gone."""
        self.set_visibility(False)

    def _button(self, name: str, icon: str, action: object = None) -> ui.button:
        button = ui.button(self._page.t(f"job.{name}"), icon=icon, color=None)
        button.props(f"outline no-caps dense data-test=job-{name}")
        if callable(action):
            button.on_click(action)
        self._buttons[name] = button
        return button

    async def _stop(self) -> None:
        page, job = self._page, self._job
        more = page.t("job.stop_children") if job is not None and job.stop_children else ""
        if await self._confirmed("stop", more):
            await page.act(
                Role.SUBMIT, lambda service: service.stop([self._id]), done=page.t("job.stop_asked")
            )

    async def _retry(self) -> None:
        page = self._page
        jobs = await page.act(Role.SUBMIT, lambda service: service.retry([self._id]), done="")
        if jobs:
            with page.client:
                ui.navigate.to(job_address(jobs[0].submission_id))

    async def _delete(self) -> None:
        page = self._page
        if not await self._confirmed("delete"):
            return

        def delete(service: LocalService) -> bool:
            service.delete([self._id])
            return True

        if await page.act(Role.SUBMIT, delete, done=""):
            with page.client:
                ui.navigate.to("/jobs")

    async def _confirmed(self, name: str, more: str = "") -> bool:
        """Ask whether it is meant."""
        page = self._page
        with page.client.content, ui.dialog() as dialog, ui.card():
            ui.label(page.t(f"job.{name}_sure")).classes("raymc-subtitle").props("role=heading aria-level=2")
            ui.label(self._id).classes("mono")
            ui.label(more or page.t(f"job.{name}_means"))
            with ui.element("div").classes("line").style("justify-content: flex-end"):
                ui.button(page.t("common.cancel"), on_click=lambda: dialog.submit(None)).props(
                    "flat no-caps autofocus"
                )
                sure = ui.button(page.t(f"job.{name}"), color="negative")
                sure.props("no-caps data-test=job-confirm").on_click(lambda: dialog.submit("yes"))
        answer = await dialog
        dialog.delete()
        return bool(answer == "yes")
