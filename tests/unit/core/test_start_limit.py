"""The number of starts in flight follows what a cluster shows."""

from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.core.pacing import FIRST_LIMIT, StartLimit, after_start, first_limit


def after(limit: StartLimit, *starts_s: float) -> StartLimit:
    """Let jobs start one after another, each while the limit is used up."""
    for took_s in starts_s:
        limit = after_start(limit, took_s, starting=limit.starts, full=True)
    return limit


def simulated(limit: StartLimit, *, cores: int, rounds: int = 60) -> StartLimit:
    """Start jobs on a cluster that starts `cores` of them in 2.4 s, and more of them slower by as much."""
    for _ in range(rounds):
        took_s = 2.4 * max(1.0, limit.starts / cores)
        limit = after(limit, *[took_s] * limit.starts)
    return limit


def test_an_idle_cluster_starts_the_first_jobs_at_once() -> None:
    assert first_limit(16).starts == FIRST_LIMIT


def test_a_smaller_setting_is_kept() -> None:
    assert first_limit(1).starts == 1
    assert after(first_limit(1), *[2.0] * 50).starts == 1


def test_a_fast_cluster_is_given_more_quickly() -> None:
    assert after(first_limit(1000), *[2.0] * 28).starts == 16


def test_a_cluster_that_gets_slower_is_given_less() -> None:
    limit = after(first_limit(16), *[2.0] * 6)
    assert after(limit, 6.0).starts < limit.starts


def test_one_slow_flight_counts_once() -> None:
    limit = after(first_limit(16), *[2.0] * 6)
    slow = after_start(limit, 6.0, starting=8, full=True)
    for _ in range(7):
        slow = after_start(slow, 6.0, starting=8, full=True)
    assert slow.limit == after_start(limit, 6.0, starting=8, full=True).limit


def test_starts_that_did_not_use_the_limit_do_not_raise_it() -> None:
    limit = first_limit(16)
    for _ in range(50):
        limit = after_start(limit, 2.0, starting=1, full=False)
    assert limit.starts == FIRST_LIMIT


def test_what_comes_from_when_we_look_is_no_slowness() -> None:
    assert after(first_limit(16), 0.02, 0.3, 0.4, 0.05).limit >= FIRST_LIMIT


def test_the_limit_settles_near_what_the_cluster_can_do() -> None:
    for cores in (1, 2, 4, 8, 16):
        settled = simulated(first_limit(100), cores=cores).starts
        assert cores <= settled <= 2 * max(cores, FIRST_LIMIT), (cores, settled)


def test_a_cluster_that_was_slow_for_a_while_gets_its_starts_back() -> None:
    limit = simulated(simulated(first_limit(100), cores=8), cores=1)
    assert simulated(limit, cores=8, rounds=300).starts >= 8


@given(
    starts=st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 200), st.booleans()), max_size=200),
    most=st.integers(1, 50),
)
def test_the_limit_never_leaves_its_bounds(starts: list[tuple[float, int, bool]], most: int) -> None:
    limit = first_limit(most)
    for took_s, starting, full in starts:
        limit = after_start(limit, took_s, starting=starting, full=full)
        assert 1 <= limit.starts <= most
