"""Whose turn it is: priority, then the user who holds least, then age."""

from tests.builders import a_queued

from ray_multicluster_scheduler.model.decision import QueuedJob
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.policy.order import FairOrder

TEN_CPUS: Resources = {"CPU": 10.0, "GPU": 2.0}


def turns(*queue: QueuedJob, in_use: dict[str, Resources] | None = None, place: bool = True) -> list[str]:
    """Take every job in its turn; each gets a place, or none does."""
    order, ids = FairOrder(queue, total=TEN_CPUS, in_use=in_use or {}), []
    for job in order:
        ids.append(job.submission_id)
        if place:
            order.charge(job)
    return ids


def of(user: str, *seqs: int, claim: Resources = TEN_CPUS, priority: int = 0) -> list[QueuedJob]:
    return [a_queued(f"{user}-{n}", claim, seq=n, user=user, priority=priority) for n in seqs]


ONE: Resources = {"CPU": 1.0}


def test_a_higher_priority_goes_first_however_young_and_whoever_asks() -> None:
    urgent = of("ann", 9, claim=ONE, priority=1)
    assert turns(*of("bob", 1, claim=ONE), *urgent, in_use={"ann": {"CPU": 9.0}}) == ["ann-9", "bob-1"]


def test_one_user_is_served_by_age() -> None:
    assert turns(*of("ann", 3, 1, 2)) == ["ann-1", "ann-2", "ann-3"]


def test_equal_age_is_decided_by_the_id() -> None:
    assert turns(a_queued("y", seq=1), a_queued("x", seq=1)) == ["x", "y"]


def test_users_take_turns_even_if_one_came_first_with_many_jobs() -> None:
    queue = of("ann", 1, 2, 3, claim=ONE) + of("bob", 4, 5, claim=ONE)
    assert turns(*queue) == ["ann-1", "bob-4", "ann-2", "bob-5", "ann-3"]


def test_who_asks_for_twice_as_much_is_served_half_as_often() -> None:
    queue = of("ann", 1, 2, 3, 4, claim=ONE) + of("bob", 5, 6, claim={"CPU": 2.0})
    assert turns(*queue) == ["ann-1", "bob-5", "ann-2", "ann-3", "bob-6", "ann-4"]


def test_what_a_user_already_holds_counts() -> None:
    queue = of("ann", 1, 2, claim=ONE) + of("bob", 3, 4, claim=ONE)
    assert turns(*queue, in_use={"ann": {"CPU": 2.0}}) == ["bob-3", "bob-4", "ann-1", "ann-2"]


def test_the_scarcest_resource_decides_the_share() -> None:
    queue = of("ann", 1, 2, claim={"GPU": 1.0}) + of("bob", 3, 4, 5, claim=ONE)
    assert turns(*queue) == ["ann-1", "bob-3", "bob-4", "bob-5", "ann-2"]


def test_a_user_whose_jobs_find_no_place_keeps_the_turn() -> None:
    queue = of("ann", 1, 4) + of("bob", 2, 3)
    assert turns(*queue, place=False) == ["ann-1", "bob-2", "bob-3", "ann-4"]


def test_a_resource_that_no_cluster_has_gives_no_share() -> None:
    assert turns(*of("ann", 1, 2, claim={"TPU": 1.0}), *of("bob", 3, claim=ONE)) == [
        "ann-1",
        "ann-2",
        "bob-3",
    ]
