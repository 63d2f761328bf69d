"""What is known of a job, as a list of names and values."""

from __future__ import annotations

from nicegui import ui

from ray_multicluster_scheduler.dashboard.addresses import cluster_address
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.parts.chips import Lasting, When
from ray_multicluster_scheduler.dashboard.parts.job_list_address import address
from ray_multicluster_scheduler.dashboard.parts.resource_text import resources_text
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.views import JobView

#: Options that have a place of their own on the page.
_SHOWN = frozenset({"tags", "priority", "depends_on", "group", "parent"})
_TIMES = ("accepted", "placed", "started", "ended")


def options_text(job: JobView) -> str:
    """Return the other options of a job, one in each line, as far as they are not the default."""
    given = {each.name: getattr(job, each.name) for each in JOB_OPTIONS if each.name not in _SHOWN}
    defaults = {each.name: each.default for each in JOB_OPTIONS}
    return "\n".join(f"{name}: {value}" for name, value in given.items() if value != defaults[name])


class JobFacts(ui.element):
    """A list of names and values. A value that a job does not have is left out."""

    def __init__(self, page: Page) -> None:
        super().__init__("dl")
        self.classes("facts")
        self._page = page
        self._rows: dict[str, ui.element] = {}
        self._texts: dict[str, ui.label] = {}
        self._links: dict[str, ui.link] = {}
        self._times: dict[str, When] = {}
        with self:
            self._add_text("id", "mono")
            self._add_text("user")
            self._add_link("cluster")
            for name in _TIMES:
                with self._row(name):
                    self._times[name] = When(style="moment")
                    if name == "ended":
                        self._unreported = ui.label(page.t("job.end_unreported")).classes("quiet")
            with self._row("lasting"):
                self._lasting = Lasting()
            self._add_text("exit_code")
            self._add_text("error_type")
            self._add_text("claim")
            self._add_text("priority")
            self._add_link("group")
            self._add_text("tags")
            self._add_text("avoid")
            self._add_text("metadata", "mono lines")
            self._add_text("options", "mono lines")

    def show(self, job: JobView) -> None:
        """Show how it is now."""
        page = self._page
        self._put("id", job.submission_id)
        self._put("user", job.user)
        self._put_link("cluster", job.cluster, cluster_address(job.cluster or ""))
        self._put_times(job)
        self._put("exit_code", "" if job.exit_code is None else str(job.exit_code))
        kind = job.error_type or ""
        self._put("error_type", page.words.known(f"error_types.{kind}", kind))
        self._texts["error_type"].props["title"] = kind
        self._put("claim", resources_text(page.words, job.resource_requirements) or page.t("common.none"))
        self._put("priority", str(job.priority))
        self._put_link("group", job.group, address(JobQuery(group=job.group)))
        self._put("tags", ", ".join(job.tags))
        self._put("avoid", ", ".join(job.avoid))
        self._put("metadata", "\n".join(f"{name}: {value}" for name, value in job.metadata.items()))
        self._put("options", options_text(job))

    def _put_times(self, job: JobView) -> None:
        for name in _TIMES:
            at: float | None = getattr(job, f"{name}_at")
            self._times[name].show(at)
            self._rows[name].set_visibility(at is not None)
        self._unreported.set_visibility(job.end_unreported)
        self._rows["lasting"].set_visibility(job.started_at is not None)
        self._lasting.show(job.started_at, job.ended_at)

    def _put(self, name: str, text: str) -> None:
        self._texts[name].set_text(text)
        self._rows[name].set_visibility(bool(text))

    def _put_link(self, name: str, text: str | None, address: str) -> None:
        link = self._links[name]
        if link.text != (text or ""):
            link.set_text(text or "")
            link._props["href"] = address
            link.update()
        self._rows[name].set_visibility(text is not None)

    def _row(self, name: str) -> ui.element:
        with ui.element("div") as row:
            with ui.element("dt"):
                ui.label(self._page.t(f"job.{name}"))
            value = ui.element("dd").props(f"data-test=job-{name}")
        self._rows[name] = row
        return value

    def _add_text(self, name: str, classes: str = "") -> None:
        with self._row(name):
            self._texts[name] = ui.label().classes(classes)

    def _add_link(self, name: str) -> None:
        with self._row(name):
            self._links[name] = ui.link("", "")
