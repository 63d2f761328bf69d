"""What a job needs and what needs it, who has submitted it and what it has submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nicegui import events, ui

from ray_multicluster_scheduler.dashboard.addresses import job_address
from ray_multicluster_scheduler.dashboard.chips import QUIET, STATE_COLOURS, StateChip
from ray_multicluster_scheduler.dashboard.page import Page
from ray_multicluster_scheduler.dashboard.pages.jobs_page import title_of
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import JobView

#: How many other jobs are drawn on each side, and among how many of its chain those are sought that need it.
MOST_ON_A_SIDE = 20
MOST_READ = 500
#: The kinds, each with its column: left of the job, or right of it.
KINDS = {"needs": 0, "parent": 0, "needed_by": 2, "children": 2}
ROW_PX = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Relations:
    """Other jobs by kind, each by its id; None: it is not known any more, or not for this visitor."""

    kinds: Mapping[str, Mapping[str, JobView | None]] = field(default_factory=dict)
    #: There are more than are shown.
    more: bool = False

    @property
    def empty(self) -> bool:
        """Tell whether there is nothing to show."""
        return not any(self.kinds.values())


def read_relations(service: LocalService, job: JobView) -> Relations:
    """Ask the store, not the clusters."""
    name = job.submission_id
    above = [*job.depends_on, *([job.parent] if job.parent else [])][: MOST_ON_A_SIDE + 1]
    known = service.get_many(above)
    chain = service.list_jobs(JobQuery(head=job.head or name, limit=MOST_READ))
    children = service.list_jobs(JobQuery(parent=name, limit=MOST_ON_A_SIDE + 1))
    return limited(
        {
            "needs": {each: known.get(each) for each in job.depends_on},
            "parent": {job.parent: known.get(job.parent)} if job.parent else {},
            "needed_by": {each.submission_id: each for each in chain.jobs if name in each.depends_on},
            "children": {each.submission_id: each for each in children.jobs},
        },
        more=chain.next_cursor is not None,
    )


def limited(kinds: Mapping[str, Mapping[str, JobView | None]], *, more: bool = False) -> Relations:
    """Keep as many as are drawn on each side: of each kind the first ones, and of no kind none."""
    kept: dict[str, Mapping[str, JobView | None]] = {}
    for kind, jobs in kinds.items():
        others = [len(kinds.get(each, {})) for each in KINDS if KINDS[each] == KINDS[kind] and each != kind]
        room = max(MOST_ON_A_SIDE - sum(others), MOST_ON_A_SIDE // 2)
        kept[kind] = dict(list(jobs.items())[:room])
        more = more or len(jobs) > room
    return Relations(kinds=kept, more=more)


def shown_name(submission_id: str, job: JobView | None) -> str:
    """Return what a job is called in a list."""
    return submission_id if job is None else title_of(job)


def chart(job: JobView, relations: Relations) -> dict[str, Any]:
    """Return the options of the graph: one column on each side of the job."""
    columns: dict[int, list[tuple[str, JobView | None]]] = {0: [], 1: [(job.submission_id, job)], 2: []}
    links = []
    placed = {job.submission_id}
    for kind, column in KINDS.items():
        for name, other in relations.kinds.get(kind, {}).items():
            if name not in placed:
                placed.add(name)
                columns[column].append((name, other))
            source, target = (job.submission_id, name) if column else (name, job.submission_id)
            style = {"type": "dashed" if kind in {"parent", "children"} else "solid"}
            links.append({"source": source, "target": target, "lineStyle": style})
    nodes = [
        _node(name, other, column=column, place=(index + 0.5) / len(jobs), own=name == job.submission_id)
        for column, jobs in columns.items()
        for index, (name, other) in enumerate(jobs)
    ]
    hidden = {"type": "value", "show": False, "min": 0}
    return {
        "grid": {"left": 130, "right": 130, "top": 4, "bottom": 4},
        "xAxis": {**hidden, "max": 2},
        "yAxis": {**hidden, "max": 1, "inverse": True},
        "series": [_series(nodes, links)],
        "tooltip": {"show": False},
        "animation": False,
    }


def height_px(relations: Relations) -> int:
    """Return the height that the fuller column needs."""
    rows = [
        sum(len(relations.kinds.get(kind, {})) for kind, column in KINDS.items() if column == side)
        for side in (0, 2)
    ]
    return ROW_PX * max(4, *rows)


def _node(name: str, job: JobView | None, *, column: int, place: float, own: bool) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "value": [column, place],
        "symbolSize": 18 if own else 13,
        "itemStyle": {"color": QUIET if job is None else STATE_COLOURS[job.state.value]},
        "label": {
            "formatter": _escaped(shown_name(name, job)),
            "position": ("left", "bottom", "right")[column],
        },
    }


def _escaped(text: str) -> str:
    """Return a text that ECharts shows as it is: in braces it would look for parts of its data."""
    return text.replace("{", "(").replace("}", ")")


def _series(nodes: Sequence[dict[str, Any]], links: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": "graph",
        "coordinateSystem": "cartesian2d",
        "data": list(nodes),
        "links": list(links),
        "edgeSymbol": ["none", "arrow"],
        "edgeSymbolSize": 7,
        "lineStyle": {"color": QUIET, "opacity": 0.8},
        "label": {"show": True, "color": QUIET, "width": 110, "overflow": "truncate", "fontSize": 12},
        "emphasis": {"disabled": True},
    }


# The relations of a job as a small graph, and as a list for whoever does not see it or has no mouse.


class JobGraph(ui.element):
    """A graph whose nodes open their jobs, and the same as lists of links."""

    def __init__(self, page: Page) -> None:
        super().__init__("div")
        self.classes("stack")
        self._page = page
        self._drawn: object = None
        self._listed: dict[str, tuple[ui.element, ui.element]] = {}
        self._keys: dict[str, object] = {}
        with self:
            self._chart = ui.echart({}, on_point_click=self._open).props("aria-hidden=true")
            self._chart.classes("job-graph")
            self._more = ui.label(page.t("job.relations_more", shown=MOST_ON_A_SIDE)).classes("quiet")
            with ui.element("div").classes("relations").props("data-test=job-relations"):
                for kind in KINDS:
                    self._listed[kind] = self._list(kind)

    def show(self, job: JobView, relations: Relations) -> None:
        """Show these; what has not changed is left alone."""
        drawn = chart(job, relations)
        if drawn != self._drawn:
            self._drawn = drawn
            self._chart.style(f"height: {height_px(relations)}px")
            self._chart.options.clear()
            self._chart.options.update(drawn)
            self._chart.update()
        self._more.set_visibility(relations.more)
        for kind, (box, items) in self._listed.items():
            jobs = relations.kinds.get(kind, {})
            key = [(name, shown_name(name, other), other and other.state) for name, other in jobs.items()]
            box.set_visibility(bool(jobs))
            if key != self._keys.get(kind):
                self._keys[kind] = key
                self._fill(items, jobs)

    def _list(self, kind: str) -> tuple[ui.element, ui.element]:
        with ui.element("div") as box:
            ui.label(self._page.t(f"job.{kind}")).classes("quiet").props("role=heading aria-level=3")
            items = ui.element("ul")
        return box, items

    def _fill(self, items: ui.element, jobs: Mapping[str, JobView | None]) -> None:
        items.clear()
        with items:
            for name, other in jobs.items():
                with ui.element("li"):
                    if other is None:
                        ui.label(name)
                        ui.label(self._page.t("job.unknown_job")).classes("quiet")
                    else:
                        ui.link(shown_name(name, other), job_address(name))
                        StateChip(self._page).show(other.state.value)

    def _open(self, event: events.EChartPointClickEventArguments) -> None:
        if event.data_type == "node":
            ui.navigate.to(job_address(str(event.name)))
