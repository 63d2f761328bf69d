"""Who gives up history when there is too much of it."""

from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.model.storage import fair_cuts


def test_who_holds_the_most_comes_down_to_the_level_of_the_others() -> None:
    held = {"ann": 100, "bob": 10, "eve": 60}
    assert fair_cuts(held, 30) == {"ann": 30}
    assert fair_cuts(held, 60) == {"ann": 50, "eve": 10}
    assert fair_cuts(held, 0) == fair_cuts({}, 5) == {}
    assert fair_cuts(held, 1000) == held


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50)), st.integers(0, 300))
def test_all_that_has_to_go_goes_and_nobody_who_gives_is_left_with_less_than_who_does_not(
    held: dict[str, int], excess: int
) -> None:
    cuts = fair_cuts(held, excess)
    assert sum(cuts.values()) == min(excess, sum(held.values()))
    left = {user: held[user] - cuts.get(user, 0) for user in held}
    assert all(amount >= 0 for amount in left.values())
    assert all(left[giver] >= amount - 1 for giver in cuts for amount in left.values())
