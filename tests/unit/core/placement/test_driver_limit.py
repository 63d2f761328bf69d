"""How many drivers a head may run, and the words for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import a_cluster, a_head, a_snapshot
from tests.support.strategies import THOROUGH

from ray_multicluster_scheduler.core.placement.capacity import (
    DRIVER_BYTES,
    HIGHEST_LIMIT,
    USUAL_LIMIT,
    driver_limit,
    limit_origin,
)
from ray_multicluster_scheduler.model.cluster import ClusterSnapshot
from ray_multicluster_scheduler.model.resources import GIB

UNSET = a_cluster(max_running_jobs=None)
amounts = st.floats(0, 1e15)


def with_head(memory: float | None) -> ClusterSnapshot:
    workers = (a_head(900 * GIB, node_id="w", is_head=False), a_head(9.0, node_id="old", alive=False))
    return a_snapshot(nodes=(*workers, a_head(memory)))


@pytest.mark.parametrize(
    ("gib", "jobs"),
    [(0.05, 1), (0.5, 3), (1.4, 8), (2, 12), (8, 50), (11, 69), (22, HIGHEST_LIMIT), (700, HIGHEST_LIMIT)],
)
def test_the_head_alone_decides_and_gives_half_of_its_memory_to_drivers(gib: float, jobs: int) -> None:
    assert driver_limit(UNSET, with_head(gib * GIB)) == jobs


@THOROUGH
@given(amounts, st.integers(1, 10_000))
def test_what_is_configured_wins(memory: float, configured: int) -> None:
    spec = a_cluster(max_running_jobs=configured)
    assert driver_limit(spec, with_head(memory)) == configured
    assert limit_origin(spec, with_head(memory)) == "max_running_jobs"


@THOROUGH
@given(amounts.filter(bool), amounts.filter(bool))
def test_more_memory_never_allows_less_and_drivers_fit_into_it(one: float, other: float) -> None:
    less, more = (driver_limit(UNSET, with_head(memory)) for memory in sorted((one, other)))
    assert 1 <= less <= more <= HIGHEST_LIMIT
    assert less == 1 or less * DRIVER_BYTES <= min(one, other)


@pytest.mark.parametrize(
    "unknown",
    [
        a_snapshot(nodes=None),
        a_snapshot(nodes=()),
        a_snapshot(nodes=(a_head(is_head=False),)),
        a_snapshot(nodes=(a_head(alive=False, resources={}),)),
        with_head(None),
        with_head(0.0),
    ],
)
def test_memory_that_is_unknown_is_not_zero(unknown: ClusterSnapshot) -> None:
    assert driver_limit(UNSET, unknown) == USUAL_LIMIT
    words = "the memory of its head is unknown; set max_running_jobs to change it"
    assert limit_origin(UNSET, unknown) == words


def test_the_usual_limit_is_that_of_a_head_with_8_gib() -> None:
    assert driver_limit(UNSET, with_head(8 * GIB)) == USUAL_LIMIT


def test_the_words_name_the_memory_and_the_way_out() -> None:
    words = "its head has 3.9 GiB of memory for Ray; set max_running_jobs to change it"
    assert limit_origin(UNSET, with_head(3.9 * GIB)) == words
