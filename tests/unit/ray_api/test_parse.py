"""Ray's JSON, as real heads of Ray 2.60 sent it (shortened), turned into records."""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.model.cluster import Node, RemoteVersion, Usage
from ray_multicluster_scheduler.model.execution import AttemptStatus, FailureKind, InventoryRow, Sighting
from ray_multicluster_scheduler.ray_api import parse
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer
from ray_multicluster_scheduler.ray_api.parse import parse_usage_text

NODE_ID = "9950201320a325a931b776e19c873c0a807a698710e8b99961e23183"
GROUP = "a5e2b02c4f68e10dab1614b1724c02000000"
MANGLED_GROUP = "A5E2B02C4F68E10Dab1614B1724C02000000"

VERSION = {
    "version": "4",
    "ray_version": "2.60.0",
    "ray_commit": "b7f4259e944bf6959f721b106adc366ddfa0c356",
    "session_name": "session_2026-11-15_19-12-39_909164_5379",
}
METADATA = {
    "result": True,
    "msg": "",
    "data": {"rayVersion": "2.60.0", "pythonVersion": "3.11.7", "rayInitCluster": False},
}
NODE_ROW = {
    "node_id": NODE_ID,
    "node_ip": "127.0.0.71",
    "is_head_node": True,
    "state": "ALIVE",
    "state_message": None,
    "node_name": "127.0.0.71",
    "resources_total": {
        "CPU": 3.0,
        "disk": 5.0,
        "node:__internal_head__": 1.0,
        "memory": 2000000000.0,
        "node:127.0.0.71": 1.0,
        f"CPU_group_0_{GROUP}": 1.0,
        f"CPU_group_{GROUP}": 1.0,
    },
    "labels": {"ray.io/node-id": NODE_ID},
}
JOB_ROW = {
    "type": "SUBMISSION",
    "job_id": "02000000",
    "submission_id": "full_1",
    "driver_info": {"id": "02000000", "node_ip_address": "127.0.0.1", "pid": "556"},
    "status": "FAILED",
    "entrypoint": "echo before; exit 7",
    "message": "Job entrypoint command failed with exit code 7, last available logs",
    "error_type": "JOB_ENTRYPOINT_COMMAND_ERROR",
    "start_time": 1794765801586,
    "end_time": 1794765802943,
    "metadata": {"a": "b"},
    "runtime_env": {"env_vars": {"K": "v"}},
    "driver_agent_http_address": "http://127.0.0.1:52365",
    "driver_node_id": NODE_ID,
    "driver_exit_code": 7,
}
PENDING_ROW = {
    **JOB_ROW,
    "status": "PENDING",
    "error_type": None,
    "end_time": None,
    "metadata": None,
    "runtime_env": None,
    "driver_node_id": None,
    "driver_exit_code": None,
}
DRIVER_ROW = {**PENDING_ROW, "type": "DRIVER", "submission_id": None, "message": None, "end_time": 0}
#: A placement group holds 1 CPU and 2 disk and uses 1 of each; `my_res` is a custom resource.
STATUS = {
    "result": True,
    "msg": "Got cluster status.",
    "data": {
        "autoscalingStatus": "Cluster status: 0 nodes",
        "autoscalingError": None,
        "clusterStatus": {
            "loadMetricsReport": {
                "usage": {
                    f"CPUGroup0{MANGLED_GROUP}": [1.0, 1.0],
                    f"bundleGroup{MANGLED_GROUP}": [0.0009999999999763531, 1000.0],
                    "node:127.0.0.71": [0.0, 1.0],
                    "memory": [524288000.0, 2000000000.0],
                    "CPU": [1.75, 3.0],
                    "disk": [2.0, 5.0],
                    "myRes": [0.0, 2.0],
                    "objectStoreMemory": [0.0, 100000000.0],
                    f"CPUGroup{MANGLED_GROUP}": [1.0, 1.0],
                    "node:InternalHead": [0.0, 1.0],
                },
                "resourceDemand": [
                    [{f"bundle_group_{GROUP}": 0.001, f"CPU_group_{GROUP}": 1.0}, 2],
                    [{"my_res": 1.0, "CPU": 8.0}, 3],
                ],
                "pgDemand": [
                    [
                        {
                            "bundles": [[{"CPU": 50.0}, 2], [{"GPU": 9.0, "CPU": 1.0}, 1]],
                            "strategy": "SPREAD",
                        },
                        2,
                    ]
                ],
                "requestDemand": [],
                "nodeTypes": [
                    [
                        {
                            "disk": 5.0,
                            "object_store_memory": 100000000.0,
                            "my_res": 2.0,
                            "memory": 2000000000.0,
                            "CPU": 3.0,
                            f"bundle_group_{GROUP}": 1000.0,
                            f"CPU_group_{GROUP}": 1.0,
                            "node:__internal_head__": 1.0,
                            "node:127.0.0.71": 1.0,
                            f"CPU_group_0_{GROUP}": 1.0,
                        },
                        1,
                    ]
                ],
            }
        },
    },
}
STATUS_TEXT = """Total Usage:
 1.75/3.0 CPU (1.0 used of 1.0 reserved in placement groups)
 500.00MiB/1e400GiB memory

Pending Demands:
 {'CPU': 8.0}: 99999999999999999999+ pending tasks/actors
"""
STATUS_OF_AUTOSCALER_V2 = {
    "result": True,
    "msg": "Got cluster status.",
    "data": {"autoscalingStatus": None, "autoscalingError": None, "clusterStatus": None},
}


def nodes_answer(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"result": True, "msg": "", "data": {"result": {"total": len(rows), "result": list(rows)}}}


def test_version() -> None:
    assert parse.version(VERSION) == RemoteVersion(
        api_version="4", ray_version="2.60.0", session_name="session_2026-11-15_19-12-39_909164_5379"
    )


def test_an_old_ray_has_no_session_name() -> None:
    assert parse.version({"version": "4", "ray_version": "2.2.0"}).session_name is None


def test_python_version() -> None:
    assert parse.python_version(METADATA) == "3.11.7"


def test_nodes_keep_what_jobs_can_use_and_drop_markers_and_groups() -> None:
    dead = {**NODE_ROW, "node_id": "d", "state": "DEAD", "is_head_node": False, "resources_total": {}}
    assert parse.nodes(nodes_answer(NODE_ROW, dead)) == (
        Node(
            node_id=NODE_ID,
            address="127.0.0.71",
            alive=True,
            is_head=True,
            resources={"CPU": 3.0, "disk": 5.0, "memory": 2000000000.0},
            labels={"ray.io/node-id": NODE_ID},
        ),
        Node(node_id="d", address="127.0.0.71", alive=False, labels={"ray.io/node-id": NODE_ID}),
    )


def test_usage_has_true_names_and_counts_what_groups_reserve_as_used() -> None:
    assert parse.usage(STATUS) == Usage(
        total={
            "memory": 2000000000.0,
            "CPU": 3.0,
            "disk": 5.0,
            "my_res": 2.0,
            "object_store_memory": 100000000.0,
        },
        used={"memory": 524288000.0, "CPU": 1.75, "disk": 2.0, "my_res": 0.0, "object_store_memory": 0.0},
        # Tasks inside of a group wait for what the group holds: no further demand.
        pending=(({"my_res": 1.0, "CPU": 8.0}, 3), ({"CPU": 50.0}, 4), ({"GPU": 9.0, "CPU": 1.0}, 2)),
    )


def test_empty_json_of_autoscaler_v2_is_unknown_not_zero() -> None:
    assert parse.usage(STATUS_OF_AUTOSCALER_V2) is None


def test_job_times_are_seconds() -> None:
    assert parse.sighting(JOB_ROW) == Sighting(
        remote_id="full_1",
        status=AttemptStatus.FAILED,
        message="Job entrypoint command failed with exit code 7, last available logs",
        failure=FailureKind.USER,
        error_type="JOB_ENTRYPOINT_COMMAND_ERROR",
        exit_code=7,
        started_at=1794765801.586,
        ended_at=1794765802.943,
        node_id=NODE_ID,
        metadata={"a": "b"},
    )


def test_what_ray_leaves_out_of_a_job_is_unknown() -> None:
    found = parse.sighting(PENDING_ROW)
    assert (found.ended_at, found.node_id, found.exit_code, found.metadata) == (None, None, None, {})
    assert found.failure is None


def test_of_an_environment_that_failed_the_words_that_matter_are_told() -> None:
    message = (
        "runtime_env setup failed: Failed to set up.\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in f\nValueError: Could not find Conda executable at conda.\n'
    )
    found = parse.sighting({**JOB_ROW, "error_type": "RUNTIME_ENV_SETUP_FAILURE", "message": message})
    assert found.failure is FailureKind.NO_ENVIRONMENT
    assert found.message == "ValueError: Could not find Conda executable at conda."


def test_a_row_of_a_driver_is_marked_as_one() -> None:
    row = parse.inventory_row(DRIVER_ROW)
    assert row == InventoryRow("02000000", AttemptStatus.PENDING, {}, is_driver=True)
    assert parse.inventory_row({**DRIVER_ROW, "job_id": None}) is None
    assert parse.inventory_row(JOB_ROW) == InventoryRow("full_1", AttemptStatus.FAILED, {"a": "b"})


def test_an_unknown_status_is_malformed_but_no_reason_to_leave_the_row_out() -> None:
    row = {**JOB_ROW, "status": "DANCING"}
    assert parse.inventory_row(row) == InventoryRow("full_1", None, {"a": "b"})
    with pytest.raises(MalformedAnswer, match="unknown job status 'DANCING'"):
        parse.sighting(row)


#: Numbers that neither 64 bits nor a float can hold, and characters that no file can.
HUGE = st.sampled_from([2**63, -(2**70), 10**400, -(10**400), 253_402_300_800_000])
BAD_TEXT = st.text(st.characters(exclude_categories=()) | st.sampled_from("\0\ud800\udfff"), max_size=5)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | HUGE | st.floats() | BAD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(BAD_TEXT, inner, max_size=3),
    max_leaves=8,
)
PARSERS: list[tuple[Callable[[Any], object], dict[str, Any]]] = [
    (parse.version, VERSION),
    (parse.python_version, METADATA),
    (parse.nodes, nodes_answer(NODE_ROW)),
    (parse.usage, STATUS),
    (parse.sighting, JOB_ROW),
    (lambda answer: parse_usage_text(parse.status_text(answer)), {"data": {"clusterStatus": STATUS_TEXT}}),
    (lambda answer: parse.flag(answer, "stopped"), {"stopped": True}),
]


def places(value: Any) -> list[tuple[Any, ...]]:
    """Return the way to every value inside of a JSON value."""
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    else:
        inner = []
    return [(), *((key, *rest) for key, child in inner for rest in places(child))]


def changed(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """Return a JSON value with one place replaced: a value, or (by a text) the name of one."""
    if not place:
        return new
    key, *rest = place
    if isinstance(value, dict) and not rest and isinstance(new, str) and len(new) % 2:
        return {new if name == key else name: child for name, child in value.items()}
    if isinstance(value, dict):
        return {**value, key: changed(value[key], tuple(rest), new)}
    return [changed(child, tuple(rest), new) if index == key else child for index, child in enumerate(value)]


def test_numbers_that_no_column_can_hold_are_unknown() -> None:
    row = {**JOB_ROW, "driver_exit_code": 2**70, "start_time": 10**400, "end_time": 253_402_300_800_000}
    found = parse.sighting(row)
    assert (found.exit_code, found.started_at, found.ended_at) == (None, None, None)
    (node,) = parse.nodes(nodes_answer({**NODE_ROW, "resources_total": {"CPU": 10**400, "GPU": 1}}))
    assert node.resources == {"GPU": 1.0}


def test_names_of_resources_and_labels_are_cleaned_and_bounded() -> None:
    many = {f"r{number}": 1 for number in range(5_000)}
    rows = [{**NODE_ROW, "resources_total": {"a\ud800\0": 1, "x" * 10_000: 2}, "labels": {"\ud800": 10**400}}]
    rows += [{**NODE_ROW, "resources_total": {f"{name}-{row}": 1 for name in many}} for row in range(2)]
    first, *others = parse.nodes(nodes_answer(*rows))
    assert list(first.resources) == ["a??", "x" * 500]
    assert first.labels == {"?": "?"}
    assert sum(len(node.resources) for node in (first, *others)) == parse.MAX_NAMES


def test_an_overlong_message_keeps_its_beginning_and_its_end() -> None:
    message = parse.sighting({**JOB_ROW, "message": "begin" + "x" * 10_000_000 + "end"}).message
    assert (len(message) < 200_000, message[:5], message[-3:]) == (True, "begin", "end")


def storable(value: Any) -> bool:
    """Tell whether every database can hold a value."""
    if isinstance(value, str):
        return "\0" not in value and value.encode("utf-8", "replace").decode() == value
    if isinstance(value, Mapping):
        return all(storable(key) and storable(item) for key, item in value.items())
    if isinstance(value, (tuple, list)):
        return all(map(storable, value))
    if is_dataclass(value):
        return all(
            storable(getattr(value, each.name)) for each in fields(value) if each.name != "runtime_env"
        )
    return value is None or (math.isfinite(value) and abs(value) < 2**63)


@given(st.data())
def test_a_surprise_anywhere_is_read_or_malformed_and_never_a_crash(data: st.DataObject) -> None:
    read, answer = data.draw(st.sampled_from(PARSERS))
    place = data.draw(st.sampled_from(places(answer)))
    strange = changed(answer, place, data.draw(JSON))
    with suppress(MalformedAnswer):
        assert storable(read(parse.json_object(json.dumps(strange).encode())))
