"""The text of `ray status`, as a real head with autoscaler v2 sent it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.model.cluster import Usage
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.ray_api.parse import parse_usage_text

HEADER = """\
======== Autoscaler status: 2026-11-15 19:14:35.520494 ========
Node status
---------------------------------------------------------------
Active:
 1 node_afc95cf452b69a8003932415109928a77d7fe7236c765b979d2fe177
Idle:
 (no idle nodes)
Pending:
 (no pending nodes)
Recent failures:
 (no failures)

Resources
---------------------------------------------------------------
"""
BUSY = f"""\
{HEADER}Total Usage:
 1.75/3.0 CPU (1.0 used of 1.0 reserved in placement groups)
 0.0/1.0 GPU
 1.0/5.0 disk (1.0 used of 2.0 reserved in placement groups)
 500.00MiB/1.86GiB memory
 0B/95.37MiB object_store_memory

From request_resources:
 (none)
Pending Demands:
 {{'CPU': 8.0, 'my_res': 1.0}}: 3+ pending tasks/actors
 {{'CPU': 1.0}}: 2+ pending tasks/actors (2+ using placement groups)
 {{'CPU': 50.0}} * 2, {{'GPU': 9.0, 'CPU': 1.0}} * 1 (SPREAD): 1+ pending placement groups"""


def test_a_busy_cluster() -> None:
    usage = parse_usage_text(BUSY)

    assert usage.total is not None
    assert usage.total == pytest.approx(
        {
            "CPU": 3.0,
            "GPU": 1.0,
            "disk": 5.0,
            "memory": 1.86 * GIB,
            "object_store_memory": 95.37 * 2**20,
        }
    )
    # What a placement group reserves is not free, whether its tasks use it or not.
    assert usage.used == {
        "CPU": 1.75,
        "GPU": 0.0,
        "disk": 2.0,
        "memory": 500 * 2**20,
        "object_store_memory": 0.0,
    }
    assert usage.pending == (
        ({"CPU": 8.0, "my_res": 1.0}, 3),
        ({"CPU": 50.0}, 2),
        ({"GPU": 9.0, "CPU": 1.0}, 1),
    )


def test_no_demand_is_known_to_be_none() -> None:
    usage = parse_usage_text(
        f"{HEADER}Total Usage:\n 0.0/4.0 CPU\n\nPending Demands:\n (no resource demands)"
    )
    assert usage == Usage(total={"CPU": 4.0}, used={"CPU": 0.0}, pending=())


@pytest.mark.parametrize("text", ["", "No cluster status.", HEADER, f"{HEADER}Total Usage:\n\n"])
def test_what_is_not_told_is_unknown(text: str) -> None:
    assert parse_usage_text(text) == Usage()


def test_names_with_spaces_and_large_numbers() -> None:
    usage = parse_usage_text("Total Usage:\n 1.0/1e+16 my odd (name)\n 1.00TiB/2.00TiB memory\n 1B/1.00KiB x")
    assert usage.total == {"my odd (name)": 1e16, "memory": 2 * 2**40, "x": 1024.0}


@given(st.lists(st.sampled_from(BUSY.splitlines()) | st.text(), max_size=20))
def test_any_text_is_read_without_a_crash(lines: list[str]) -> None:
    usage = parse_usage_text("\n".join(lines))
    assert (usage.total is None) == (usage.used is None)
