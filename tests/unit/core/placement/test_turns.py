"""Whose turn it is: the user who holds least, then age."""

from tests.support.builders import a_queued

from ray_multicluster_scheduler.core.placement.queue import Shares, Turns
from ray_multicluster_scheduler.model.decision import QueuedJob
from ray_multicluster_scheduler.model.resources import Resources

TEN_CPUS: Resources = {"CPU": 10.0, "GPU": 2.0}


def turns(*queue: QueuedJob, in_use: dict[str, Resources] | None = None, place: bool = True) -> list[str]:
    """Take every job of one priority in its turn; each gets a place, or none does."""
    shares = Shares(total=TEN_CPUS, in_use=in_use or {})
    order: Turns[QueuedJob] = Turns(shares)
    for job in queue:
        order.put(job.user, job.seq, job.submission_id, job)
    order.start()
    ids = []
    while (first := order.first()) is not None:
        ids.append(first.submission_id)
        if place:
            shares.charge(first.user, first.claim)
        order.drop()
    return ids


def of(user: str, *seqs: int, claim: Resources = TEN_CPUS) -> list[QueuedJob]:
    return [a_queued(f"{user}-{n}", claim, seq=n, user=user) for n in seqs]


ONE: Resources = {"CPU": 1.0}


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


def test_a_line_goes_on_with_its_next_job_at_that_jobs_age() -> None:
    order: Turns[str] = Turns(Shares(total=TEN_CPUS, in_use={}))
    order.put("ann", 1, "ann-1", "ann's line")
    order.put("bob", 2, "bob-2", "bob's line")
    order.start()
    order.next(3, "ann-3")
    assert order.first() == "bob's line"
