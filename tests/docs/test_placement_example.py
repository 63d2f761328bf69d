"""The worked example of placement.md, computed again."""

import pytest
from tests.support.builders import NOW, a_queued, a_view
from tests.support.pages import DOCS, table

from ray_multicluster_scheduler.core.placement.plan import plan
from ray_multicluster_scheduler.core.placement.queue import queue_of
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import ClusterView, Placement, QueuedJob, Waiting

PAGE = DOCS / "placement.md"
JOBS = table(PAGE, "job", "CPU", "GPU", "tags")
DECIDED = {row["job"]: row for row in table(PAGE, "job", "centos", "mac", "gpu", "goes to")}


def the_clusters() -> list[ClusterView]:
    rows = table(PAGE, "cluster", "CPU", "GPU", "CPU in use", "weight", "prefer", "tags")
    return [
        a_view(
            row["cluster"],
            total={"CPU": float(row["CPU"]), "GPU": float(row["GPU"])},
            spec={
                "weight": float(row["weight"]),
                "prefer": row["prefer"] == "yes",
                "tags": tuple(row["tags"].split()),
            },
            seen={"used": {"CPU": float(row["CPU in use"])}},
        )
        for row in rows
    ]


def the_jobs() -> list[QueuedJob]:
    return [
        a_queued(
            row["job"],
            claim={name: float(row[name]) for name in ("CPU", "GPU") if float(row[name])},
            seq=number,
            tags=tuple(row["tags"].split()),
        )
        for number, row in enumerate(JOBS)
    ]


def decisions() -> dict[str, Placement | Waiting]:
    lines = queue_of(the_jobs()).lines(now=NOW)
    decided = plan(lines, the_clusters(), now=NOW, rules=PlanRules(), in_use={})
    return {each.submission_id: each for each in (*decided.placements, *decided.waiting)}


def cell(decision: Placement | Waiting, cluster: str) -> str:
    """What the page shows for a job and a cluster."""
    if cluster in decision.refusals:
        return decision.refusals[cluster].cause.value
    assert isinstance(decision, Placement)
    return f"{decision.scores[cluster].total:.3f}"


@pytest.mark.parametrize("job", DECIDED)
def test_the_planner_decides_as_the_page_says(job: str) -> None:
    decision = decisions()[job]
    shown = {cluster: cell(decision, cluster) for cluster in ("centos", "mac", "gpu")}
    goes_to = decision.cluster if isinstance(decision, Placement) else "waits"
    assert {"job": job, **shown, "goes to": goes_to} == DECIDED[job]


def test_the_quoted_reason_is_the_real_one() -> None:
    assert f'"{decisions()["huge"].refusals["centos"].sentence}"' in PAGE.read_text()
