"""The order of the clusters in their table."""

from typing import Any

import pytest
from tests.support.builders import NOW, a_view

from ray_multicluster_scheduler.dashboard.cluster_view import COLUMNS, in_order
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.service.make_views import show_cluster
from ray_multicluster_scheduler.service.views import ClusterView


def cluster(name: str, **changes: Any) -> ClusterView:
    return show_cluster(a_view(name), now=NOW).model_copy(update=changes)


@pytest.mark.parametrize(
    ("column", "order"),
    [
        ("name", "abcd"),
        ("state", "dbac"),  # what gets no jobs, then the others
        ("CPU", "adcb"),  # most room first; nothing known, last
        ("GPU", "abcd"),
        ("jobs", "cabd"),
        ("answers", "cabd"),
    ],
)
def test_clusters_are_sorted_by_a_column_and_then_by_name(column: str, order: str) -> None:
    found = [
        cluster("d", health=Health.UNHEALTHY, problem="it is dark", latency_s=0.001),
        cluster("c", live_jobs=3, latency_s=0.1, used={"CPU": 2.0}),
        cluster("b", drained=True, total=None, latency_s=0.3),
        cluster("a", latency_s=0.2),
    ]
    assert "".join(in_order(found, column)) == order


def test_every_column_sorts_clusters_of_which_nothing_is_known() -> None:
    blank = {"total": None, "used": None, "latency_s": None, "ray_version": None, "python_version": None}
    for column in COLUMNS:
        assert in_order([cluster("b", **blank), cluster("a", **blank)], column) == ["a", "b"]
