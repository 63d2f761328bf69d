"""A cluster is trusted on evidence, distrusted on evidence, and not at every flicker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.core.circuit_breaker import (
    Breaker,
    Circuit,
    Finding,
    Track,
    after_failure,
    after_success,
    finding_of_error,
    finding_of_nodes,
    judge,
    pause_s,
    score,
)
from ray_multicluster_scheduler.errors import (
    ClusterAuthFailed,
    ClusterBadAnswer,
    ClusterError,
    ClusterTimeout,
    ClusterUnreachable,
)
from ray_multicluster_scheduler.model.cluster import Health, Node

LIMIT = 3
GOOD = Finding(latency_s=0.1)
SILENT = Finding(problem="no answer within 5 s: nodes")
REFUSED = Finding(problem="connection refused", certain=True)

findings = st.sampled_from([GOOD, SILENT, REFUSED])
unit = st.floats(min_value=0, max_value=1)


def track_after(*seen: Finding) -> Track:
    track = Track()
    for finding in seen:
        track = judge(track, finding, limit=LIMIT)
    return track


def a_node(*, alive: bool = True, is_head: bool = True) -> Node:
    return Node(node_id="n", address="10.0.0.1", alive=alive, is_head=is_head)


def test_a_cluster_that_was_never_probed_is_unknown() -> None:
    assert Track().health is Health.UNKNOWN


def test_the_first_good_probe_makes_a_cluster_healthy() -> None:
    assert track_after(GOOD).health is Health.HEALTHY


@pytest.mark.parametrize("finding", [SILENT, REFUSED])
def test_a_cluster_that_never_answered_is_unhealthy_at_once(finding: Finding) -> None:
    track = track_after(finding)
    assert track.health is Health.UNHEALTHY
    assert track.problem == finding.problem


def test_a_healthy_cluster_survives_fewer_silent_probes_than_the_limit() -> None:
    track = track_after(GOOD, *[SILENT] * (LIMIT - 1))
    assert track.health is Health.HEALTHY
    assert track.problem == SILENT.problem


def test_as_many_silent_probes_as_the_limit_make_a_cluster_unhealthy() -> None:
    assert track_after(GOOD, *[SILENT] * LIMIT).health is Health.UNHEALTHY


def test_a_good_probe_in_between_starts_the_count_again() -> None:
    assert track_after(GOOD, SILENT, SILENT, GOOD, SILENT, SILENT).health is Health.HEALTHY


def test_one_certain_sign_is_enough() -> None:
    assert track_after(GOOD, REFUSED).health is Health.UNHEALTHY


def test_an_unhealthy_cluster_needs_two_good_probes_in_a_row() -> None:
    once = track_after(GOOD, REFUSED, GOOD)
    assert (once.health, once.breaker.circuit) == (Health.UNHEALTHY, Circuit.HALF_OPEN)
    assert once.problem is not None
    twice = judge(once, GOOD, limit=LIMIT)
    assert (twice.health, twice.problem) == (Health.HEALTHY, None)


def test_a_flapping_cluster_never_gets_trusted() -> None:
    assert track_after(GOOD, *[REFUSED, GOOD] * 10).health is Health.UNHEALTHY


@given(st.lists(findings, min_size=1))
def test_a_healthy_cluster_has_answered_among_its_last_probes(seen: list[Finding]) -> None:
    if track_after(*seen).health is Health.HEALTHY:
        assert GOOD in seen[-LIMIT:]


@given(st.lists(findings))
def test_two_good_probes_always_bring_a_cluster_back(seen: list[Finding]) -> None:
    assert track_after(*seen, GOOD, GOOD).health is Health.HEALTHY


@given(st.lists(findings, min_size=1))
def test_an_unhealthy_cluster_says_why(seen: list[Finding]) -> None:
    track = track_after(*seen)
    assert track.health is not Health.UNHEALTHY or track.problem


@given(st.lists(findings))
def test_the_score_stays_between_zero_and_one_and_follows_the_newest_probe(seen: list[Finding]) -> None:
    track = track_after(*seen)
    now, better, worse = (
        score(t, deadline_s=5)
        for t in (track, judge(track, GOOD, limit=LIMIT), judge(track, SILENT, limit=LIMIT))
    )
    assert 0 <= worse <= now <= better + 1e-9 <= 1 + 1e-9


def test_of_two_clusters_the_faster_one_scores_higher() -> None:
    slow = track_after(Finding(latency_s=2.0))
    assert score(slow, deadline_s=5) < score(track_after(GOOD), deadline_s=5)


def test_an_answer_at_the_deadline_scores_zero() -> None:
    assert score(track_after(Finding(latency_s=5.0)), deadline_s=5) == 0


def test_pauses_double_while_the_breaker_is_open_up_to_the_ceiling() -> None:
    breaker, pauses = Breaker(), []
    for _ in range(8):
        breaker = after_failure(breaker, limit=LIMIT)
        pauses.append(pause_s(breaker, limit=LIMIT, interval_s=5, max_delay_s=60, jitter=1))
    assert pauses == [5.5, 5.5, 10, 20, 40, 60, 60, 60]


def test_a_cluster_that_was_refused_once_is_asked_again_soon() -> None:
    opened = after_failure(Breaker(), limit=LIMIT, at_once=True)
    assert pause_s(opened, limit=LIMIT, interval_s=5, max_delay_s=60, jitter=1) == 5


def test_a_relapse_goes_on_with_the_long_pauses() -> None:
    breaker = Breaker(circuit=Circuit.OPEN, failures=5)
    relapsed = after_failure(after_success(breaker), limit=LIMIT)
    assert (relapsed.circuit, relapsed.failures) == (Circuit.OPEN, 6)


@given(
    failures=st.integers(min_value=0, max_value=10_000),
    circuit=st.sampled_from(Circuit),
    interval=st.floats(min_value=0.01, max_value=100),
    ceiling=st.floats(min_value=0.01, max_value=1000),
    jitter=unit,
)
def test_a_pause_is_never_much_shorter_than_the_interval_nor_longer_than_the_ceiling(
    failures: int, circuit: Circuit, interval: float, ceiling: float, jitter: float
) -> None:
    breaker = Breaker(circuit=circuit, failures=failures)
    pause = pause_s(breaker, limit=LIMIT, interval_s=interval, max_delay_s=ceiling, jitter=jitter)
    assert interval / 2 <= pause <= max(1.1 * interval, ceiling)


def test_a_dead_head_is_a_certain_problem_though_everything_answered() -> None:
    finding = finding_of_nodes([a_node(alive=False), a_node(is_head=False)], latency_s=0.1)
    assert finding.certain
    assert finding.problem is not None
    assert "10.0.0.1 is DEAD" in finding.problem


def test_an_earlier_head_that_died_does_not_count_against_the_new_one() -> None:
    assert finding_of_nodes([a_node(alive=False), a_node()], latency_s=0.1).problem is None


def test_a_dead_worker_node_does_not_make_a_cluster_unhealthy() -> None:
    assert finding_of_nodes([a_node(), a_node(alive=False, is_head=False)], latency_s=0.1).problem is None


def test_a_cluster_without_a_living_node_is_a_problem_even_if_no_head_is_marked() -> None:
    assert finding_of_nodes([a_node(alive=False, is_head=False)], latency_s=0.1).problem
    assert finding_of_nodes([], latency_s=0.1).problem


@pytest.mark.parametrize(
    ("error", "certain"),
    [
        (ClusterUnreachable("a", "refused", refused=True), True),
        (ClusterUnreachable("a", "unknown host"), False),
        (ClusterAuthFailed("a", "wants a token"), True),
        (ClusterTimeout("a", "no answer"), False),
        (ClusterBadAnswer("a", "HTML"), False),
    ],
)
def test_only_evidence_is_certain(error: ClusterError, certain: bool) -> None:
    assert finding_of_error(error) == Finding(problem=error.detail, certain=certain)
