"""What may be done about a job: stop, run again, submit a similar one, delete."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from ray_multicluster_scheduler.dashboard.addresses import job_address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.confirm import confirmed
from ray_multicluster_scheduler.dashboard.parts.job_rows import RETRIED
from ray_multicluster_scheduler.service.caller import Role
from ray_multicluster_scheduler.service.local_service import LocalService
from ray_multicluster_scheduler.service.views import JobView


def actions_of(job: JobView, *, session: bool) -> frozenset[str]:
    """Return what makes sense in the state of a job."""
    found = {"delete"} if job.final else {"stop"}
    if not session:
        found |= {"clone"}
        if job.state in RETRIED:
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
        what = "children" if job is not None and job.stop_children else "means"
        if await self._confirmed("stop", page.t(f"job.stop_{what}")):
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
        if not await self._confirmed("delete", page.t("job.delete_means")):
            return

        def delete(service: LocalService) -> bool:
            service.delete([self._id])
            return True

        if await page.act(Role.SUBMIT, delete, done=""):
            with page.client:
                ui.navigate.to("/jobs")

    async def _confirmed(self, name: str, about: str) -> bool:
        page = self._page
        question, do = page.t(f"job.{name}_sure"), page.t(f"job.{name}")
        return await confirmed(page, question, about=f"{self._id}\n{about}", do=do)
