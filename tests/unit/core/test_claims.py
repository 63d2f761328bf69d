"""What jobs claim, in the metadata that they carry on a cluster: written by us, read with suspicion."""

import json
import math
from typing import Any

import pytest
from tests.support.builders import a_spec

from ray_multicluster_scheduler.core.lifecycle.attempt_request import (
    CLAIM,
    MOST_CLAIM_CHARS,
    ORIGIN,
    claim_of,
    claim_text,
)
from ray_multicluster_scheduler.core.live_jobs import MOST_NAMES, OtherClaims
from ray_multicluster_scheduler.model.execution import AttemptStatus, InventoryRow

RUNNING, PENDING = AttemptStatus.RUNNING, AttemptStatus.PENDING


def a_row(
    claim: Any = '{"CPU":2}', *, origin: Any = "theirs", status: AttemptStatus | None = RUNNING
) -> InventoryRow:
    return InventoryRow("j1", status, {ORIGIN: origin, CLAIM: claim})


def counted(*rows: InventoryRow) -> Any:
    others = OtherClaims("ours")
    for row in rows:
        others.see(row)
    return others.total


@pytest.mark.parametrize(
    "claim", [{"CPU": 4.0, "GPU": 1.0, "memory": 5e9, "TPU v4": 0.5}, {}, {"memory": 1000.0}]
)
def test_a_claim_is_read_as_it_was_written(claim: dict[str, float]) -> None:
    assert claim_of(a_row(claim_text(claim))) == claim


def test_a_claim_of_very_many_resources_is_told_without_them() -> None:
    claim = {"CPU": 4.0, **{f"custom_{n}": 1.0 for n in range(1000)}}
    assert len(claim_text(claim)) <= MOST_CLAIM_CHARS
    assert claim_of(a_row(claim_text(claim))) == {"CPU": 4.0}


@pytest.mark.parametrize(
    "claim",
    [
        None,
        4,
        "",
        "four",
        "[]",
        "null",
        '"CPU"',
        '{"CPU":-1}',
        '{"CPU":NaN}',
        '{"CPU":Infinity}',
        '{"CPU":1e300}',
        '{"CPU":%s}' % ("9" * 1000),
        '{"CPU":"4"}',
        '{"CPU":true}',
        '{"CPU":{"CPU":1}}',
        '{"":1}',
        '{"C\\u0000":1}',
        '{"\\ud800":1}',
        "[" * (MOST_CLAIM_CHARS - 1),
        '{"a":' * (MOST_CLAIM_CHARS // 5),
        "x" * 10_000_000,
    ],
    ids=lambda claim: repr(claim)[:20],
)
def test_a_job_of_a_scheduler_whose_claim_cannot_be_believed_counts_as_one_cpu(claim: Any) -> None:
    assert counted(a_row(claim)) == {"CPU": 1.0}


def test_the_open_jobs_of_all_other_schedulers_are_added_up() -> None:
    session = InventoryRow("02000000", RUNNING, {ORIGIN: "third", CLAIM: '{"GPU":1}'}, is_driver=True)
    older = InventoryRow("j9", RUNNING, {ORIGIN: "theirs"})  # sent before claims were
    assert counted(a_row(), a_row('{"CPU":0.5}', status=PENDING), session, older) == {"CPU": 3.5, "GPU": 1.0}


@pytest.mark.parametrize(
    "row",
    [
        a_row(origin="ours"),
        a_row(status=AttemptStatus.SUCCEEDED),
        a_row(status=AttemptStatus.FAILED),
        a_row(status=None),
        InventoryRow("plain", RUNNING, {CLAIM: '{"CPU":2}'}),
    ],
)
def test_our_own_jobs_ended_ones_and_those_of_no_scheduler_are_not_counted(row: InventoryRow) -> None:
    assert counted(row) == {}


def test_any_number_of_names_is_bounded() -> None:
    rows = [a_row(json.dumps({f"name_{row}_{n}": 1 for n in range(90)})) for row in range(50)]
    total = counted(*rows, a_row())
    assert len(total) == MOST_NAMES - 2  # neither GPU nor memory
    assert total["CPU"] == 2.0


def test_sums_stay_finite_numbers() -> None:
    total = counted(*[a_row('{"CPU":9e18}')] * 1000)
    assert math.isfinite(total["CPU"])
    json.dumps(total, allow_nan=False)


def test_what_is_sent_carries_the_claim() -> None:
    assert claim_text(a_spec().claim) == '{"CPU":1.0}'
