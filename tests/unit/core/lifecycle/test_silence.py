"""How long a cluster has not answered."""

from dataclasses import replace

import pytest
from tests.support.builders import NOW, a_cluster, a_job

from ray_multicluster_scheduler.core.lifecycle.attempts import (
    CLOSED_LOOKS,
    LONGEST_GAP_S,
    Silence,
    after_head_look,
    after_silent_look,
    refusal_counts,
)
from ray_multicluster_scheduler.model.cluster import Witness

HEAD = Witness(session_name="session_1", addresses=a_cluster().addresses)


def silent(*looks: tuple[float, bool]) -> Silence:
    silence: Silence | None = None
    for at, refused in looks:
        silence = after_silent_look(silence, refused=refused, now=NOW + at, poll_interval_s=1.0)
    assert silence is not None
    return silence


def test_a_silence_lasts_from_its_first_look_to_its_last() -> None:
    assert silent((0, False)).lasts_s == 0
    assert silent((0, False), (5, False), (12, False)).lasts_s == 12


def test_a_refusal_counts_only_without_a_break() -> None:
    assert silent((0, True), (10, True), (20, True)).refused_s == 20
    assert silent((0, True), (10, False), (20, True), (25, True)).refused_s == 5
    assert silent((0, True), (10, False)).refused_s == 0


def test_two_looks_that_are_far_apart_are_not_one_silence() -> None:
    stopped_for_s = LONGEST_GAP_S + 21
    assert silent((0, True), (stopped_for_s, True)).lasts_s == 0
    assert silent((0, True), (stopped_for_s, True)).refused_s == 0


def after_looks(*looks: bool, head: Witness = HEAD, known: Witness | None = None) -> Witness | None:
    for is_open in looks:
        known = after_head_look(known, head, is_open=is_open)
    return known


def test_a_head_that_was_never_seen_to_listen_is_no_witness() -> None:
    assert after_looks() is None
    assert after_looks(False, False) is None


def test_a_head_is_a_witness_as_soon_as_it_is_seen_to_listen() -> None:
    assert after_looks(False, True) == HEAD


def test_a_port_that_closes_as_the_head_is_stopped_is_a_witness_and_one_that_stays_closed_is_not() -> None:
    assert after_looks(True, *[False] * (CLOSED_LOOKS - 1)) is not None
    assert after_looks(True, *[False] * (CLOSED_LOOKS - 1), True) == HEAD
    assert after_looks(True, *[False] * CLOSED_LOOKS) is None


@pytest.mark.parametrize("change", [{"session_name": "session_2"}, {"addresses": ("http://h:8265", "h:9")}])
def test_what_was_seen_of_another_head_or_address_says_nothing(change: dict[str, object]) -> None:
    assert after_looks(False, head=replace(HEAD, **change), known=HEAD) is None


@pytest.mark.parametrize(
    ("witness", "spec", "session_name", "counts"),
    [
        (HEAD, {}, "session_1", True),
        (None, {}, "session_1", False),
        (HEAD, {}, "session_2", False),
        (None, {}, None, False),
        (HEAD, {"head_address": "127.0.0.1:9"}, "session_1", False),
        (HEAD, {"dashboard": "http://127.0.0.1:9"}, "session_1", False),
    ],
)
def test_a_refusal_counts_for_jobs_of_the_session_in_which_these_addresses_were_open(
    witness: Witness | None, spec: dict[str, str], session_name: str | None, counts: bool
) -> None:
    job = a_job(session_name=session_name, cluster="a")
    assert refusal_counts(witness, a_cluster(**spec), job) is counts
