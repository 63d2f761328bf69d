"""Home first while it fits; then the best other cluster that has room; then waiting, never a refusal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import a_queued, a_view

from ray_multicluster_scheduler.errors import NeverFits, NoClusterAvailable
from ray_multicluster_scheduler.model.cluster import Health
from ray_multicluster_scheduler.model.decision import Cause, ClusterView
from ray_multicluster_scheduler.tasks.placement import Decision, Versions, place

OURS = Versions(ray="2.60.0", python="3.12.9")


def a_home(free: float = 4.0, total: float = 4.0, **changes: Any) -> ClusterView:
    return a_view("home", {"CPU": total}, seen={"used": {"CPU": total - free}}, **changes)


def another(name: str, free: float = 4.0, total: float = 4.0, **seen: Any) -> ClusterView:
    return a_view(name, {"CPU": total}, seen={"used": {"CPU": total - free}, **seen})


def decide(*views: ClusterView, home: str | None = "home", cpus: float = 1.0, **work: Any) -> Decision:
    unfit = work.pop("unfit_clusters", None)
    return place(a_queued(claim={"CPU": cpus}, **work), views, home=home, ours=OURS, unfit=unfit)


def test_home_comes_first_while_it_fits_however_much_better_another_one_is() -> None:
    assert decide(a_home(free=1), another("b", free=100, total=100)).cluster == "home"


def test_what_home_has_no_room_for_goes_to_the_emptiest_other_cluster() -> None:
    decision = decide(a_home(free=0), another("b", free=1), another("c", free=3))
    assert decision.cluster == "c"
    assert decision.refusals["home"].cause is Cause.NO_ROOM
    assert set(decision.scores) == {"b", "c"}


def test_of_the_other_clusters_prefer_goes_first() -> None:
    preferred = a_view("z", {"CPU": 4.0, "GPU": 1.0}, spec={"prefer": True})
    assert decide(a_home(free=0), another("b", free=100, total=100), preferred).cluster == "z"
    assert decide(another("b", free=100, total=100), preferred, home=None).cluster == "z"


def test_when_no_cluster_has_room_it_waits_at_home() -> None:
    decision = decide(a_home(free=0), another("b", free=0))
    assert decision.cluster == "home"
    assert "waits at home" in decision.sentence


def test_what_home_could_never_hold_waits_where_it_can_be_held() -> None:
    decision = decide(a_home(total=1), another("b", free=0, total=8), another("c", free=5, total=8), cpus=6)
    assert decision.cluster == "c"
    assert not decision.home_holds


def test_the_preferred_cluster_goes_first_and_is_left_for_one_that_has_room() -> None:
    assert decide(a_home(), another("b"), preferred_cluster="b").cluster == "b"
    assert decide(a_home(), another("b", free=0), preferred_cluster="b").cluster == "home"
    waits = decide(a_home(free=0), another("b", free=0), preferred_cluster="b")
    assert (waits.cluster, waits.home_holds) == ("b", True)


def test_what_was_just_placed_counts() -> None:
    assert decide(a_home(free=1, unseen={"CPU": 1.0}), another("b")).cluster == "b"


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        ({"ray_version": "2.9.3"}, Cause.VERSION),
        ({"ray_version": None}, Cause.VERSION),
        ({"python_version": "3.11.9"}, Cause.VERSION),
        ({"health": Health.UNHEALTHY}, Cause.UNHEALTHY),
        ({"health": Health.UNKNOWN}, Cause.UNSEEN),
    ],
)
def test_a_cluster_of_another_version_or_in_bad_health_is_no_candidate_and_the_reason_is_kept(
    seen: dict[str, Any], cause: Cause
) -> None:
    decision = decide(a_home(free=0), another("b", **seen))
    assert decision.cluster == "home"
    assert decision.refusals["b"].cause is cause


def test_the_patch_version_of_python_does_not_matter_nor_does_an_unknown_one() -> None:
    assert decide(a_home(free=0), another("b", python_version="3.12.1")).cluster == "b"
    assert decide(a_home(free=0), another("b", python_version=None)).cluster == "b"


def test_a_drained_cluster_and_one_without_a_bridge_get_nothing() -> None:
    drained = a_view("b", {"CPU": 4.0}, drained=True)
    assert decide(a_home(free=0), drained).refusals["b"].cause is Cause.DRAINED
    decision = decide(a_home(free=0), another("b"), unfit_clusters={"b": "the bridge could not be opened"})
    assert decision.refusals["b"].sentence == "the bridge could not be opened"


def test_what_no_cluster_could_ever_hold_is_refused() -> None:
    with pytest.raises(NeverFits, match="100 CPU"):
        decide(a_home(), another("b"), cpus=100)


def test_what_only_a_sick_cluster_could_hold_is_refused_for_now_with_every_reason() -> None:
    with pytest.raises(NoClusterAvailable, match=r"(?s)b: it is on fire.*home: needs 6 CPU"):
        decide(a_home(), another("b", total=8, health=Health.UNHEALTHY, problem="it is on fire"), cpus=6)


def test_before_there_is_a_home_the_best_cluster_becomes_it() -> None:
    decision = decide(another("b", free=1), another("c", free=3), home=None)
    assert decision.cluster == "c"


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8), st.booleans()), min_size=1, max_size=5),
    st.integers(1, 10),
)
def test_work_goes_only_where_it_can_be_held_and_leaves_home_only_for_room(
    clusters: list[tuple[int, int, bool]], cpus: int
) -> None:
    views = [
        a_view(
            f"c{number}" if number else "home",
            {"CPU": float(total)},
            seen={
                "used": {"CPU": float(total - min(free, total))},
                "health": Health.HEALTHY if well or not number else Health.UNHEALTHY,
            },
        )
        for number, (free, total, well) in enumerate(clusters)
    ]
    by_name = {view.spec.name: view for view in views}
    try:
        decision = decide(*views, cpus=cpus)
    except (NeverFits, NoClusterAvailable):
        assert all(
            view.snapshot.health is not Health.HEALTHY or view.snapshot.total["CPU"] < cpus  # type: ignore[index]
            for view in views
        )
        return
    chosen = by_name[decision.cluster].snapshot
    assert chosen.health is Health.HEALTHY
    assert chosen.total is not None
    assert chosen.used is not None
    assert chosen.total["CPU"] >= cpus
    home = by_name["home"].snapshot
    assert home.total is not None
    assert home.used is not None
    if home.total["CPU"] - home.used["CPU"] >= cpus:
        assert decision.cluster == "home"
    elif decision.cluster != "home" and decision.home_holds:
        assert chosen.total["CPU"] - chosen.used["CPU"] >= cpus
