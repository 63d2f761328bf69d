"""One row for many jobs: which job a list shows for an array, a group or a chain of dependencies."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.store.test_retention import ended, keep
from tests.support.builders import NOW, a_spec
from tests.support.leader import WAY, Leader

from ray_multicluster_scheduler.errors import DependencyProblem
from ray_multicluster_scheduler.maintenance import broken_rules
from ray_multicluster_scheduler.model.access import Terms
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.jobs import prune_all
from ray_multicluster_scheduler.store import Store, open_memory_store, retention
from ray_multicluster_scheduler.store.job_rows import has_more_members_than

S = JobState


def heads(store: Store) -> dict[str, str | None]:
    """Return under which job each one is listed, as the store has it."""
    return {job.submission_id: job.head for job in store.jobs.list()}


def add(store: Store, *jobs: tuple[str, dict[str, Any]], terms: Terms | None = None) -> list[str | None]:
    """Accept jobs in one call; return their heads as the call tells them."""
    given = [(submission_id, a_spec(**spec)) for submission_id, spec in jobs]
    accepted = store.jobs.add(given, now=NOW, terms=terms or Terms())
    return [job.head for job in accepted]


def listed(store: Store, **filters: Any) -> list[str]:
    return [job.submission_id for job in store.jobs.list(**filters)]


def test_a_job_without_group_and_dependency_is_listed_itself(store: Store) -> None:
    assert add(store, ("a", {}), ("b", {"parent": "a"})) == [None, None]


def test_jobs_of_a_group_are_listed_under_the_first_of_it(store: Store) -> None:
    assert add(store, ("x-0", {"group": "x"}), ("alone", {}), ("x-1", {"group": "x"})) == [None, None, "x-0"]
    assert add(store, ("x-2", {"group": "x"}), ("y-0", {"group": "y"})) == ["x-0", None]
    assert add(store, ("y-1", {"group": "y"}), ("x-3", {"group": "x"})) == ["y-0", "x-0"]
    told = {"x-0": None, "alone": None, "x-1": "x-0", "x-2": "x-0", "y-0": None, "y-1": "y-0", "x-3": "x-0"}
    assert heads(store) == told
    assert store.jobs.get("x-3").head == "x-0"


def test_groups_of_two_users_are_two(store: Store) -> None:
    assert add(store, ("hers", {"group": "g"}), ("his", {"group": "g", "user": "bob"})) == [None, None]
    assert add(store, ("his-2", {"group": "g", "user": "bob"}), ("hers-2", {"group": "g"})) == ["his", "hers"]


def test_a_chain_of_dependencies_is_listed_under_its_first_job(store: Store) -> None:
    add(store, ("load", {}))
    assert add(store, ("clean", {"depends_on": ("load",)}), ("train", {"depends_on": ("clean",)})) == [
        "load",
        "load",
    ]
    assert add(store, ("test", {"depends_on": ("train", "load")})) == ["load"]


def test_the_order_within_a_call_does_not_matter(store: Store) -> None:
    chain = [("c", {"depends_on": ("b",)}), ("b", {"depends_on": ("a",)}), ("a", {})]
    assert add(store, *chain) == ["a", "a", None]
    assert add(store, ("late", {"depends_on": ("g-0",)}), ("g-0", {"group": "g"})) == ["g-0", None]


def test_a_long_chain_in_one_call_is_one_row(store: Store) -> None:
    chain = [(f"j-{n}", {"depends_on": (f"j-{n - 1}",) if n else ()}) for n in range(3000)]
    assert add(store, *chain[::-1]) == ["j-0"] * 2999 + [None]


def test_what_depends_on_one_of_a_group_is_listed_with_the_group(store: Store) -> None:
    add(store, ("x-0", {"group": "x"}), ("x-1", {"group": "x"}))
    assert add(store, ("sum", {"depends_on": ("x-1",)}), ("report", {"depends_on": ("sum",)})) == [
        "x-0",
        "x-0",
    ]


def test_a_group_that_depends_on_another_one_is_a_row_of_its_own(store: Store) -> None:
    add(store, ("x-0", {"group": "x"}))
    after = {"group": "y", "depends_on": ("x-0",)}
    assert add(store, ("y-0", after), ("y-1", after)) == [None, "y-0"]


def test_a_job_is_never_listed_under_somebody_elses(store: Store) -> None:
    add(store, ("hers", {}))
    assert add(store, ("his", {"depends_on": ("hers",), "user": "bob"})) == [None]
    assert add(store, ("a", {}), ("b", {"depends_on": ("a",), "user": "bob"})) == [None, None]
    with pytest.raises(DependencyProblem):
        add(store, ("no", {"depends_on": ("hers",), "user": "bob"}), terms=Terms(only="bob"))


def test_a_repeated_submission_keeps_its_head(store: Store) -> None:
    again = {"group": "g", "idempotency_key": "k"}
    add(store, ("g-0", {"group": "g"}))
    assert add(store, ("g-1", again)) == ["g-0"]
    assert add(store, ("other", again), ("after", {"depends_on": ("other",)})) == ["g-0", "g-0"]


def test_members_are_counted_by_state(store: Store, leader: Leader) -> None:
    add(store, *((f"x-{n}", {"group": "x"}) for n in range(5)), ("alone", {}))
    leader.move("x-1", *WAY[S.RUNNING])
    leader.move("x-2", *WAY[S.FAILED])
    counts = {"x-0": {S.RUNNING: 1, S.FAILED: 1, S.QUEUED: 2}}
    assert store.jobs.member_counts(["x-0", "alone", "x-1", "nobody"]) == counts
    assert store.jobs.member_counts([]) == {}


def test_lists_show_heads_or_what_is_under_one(store: Store, leader: Leader) -> None:
    add(store, *((f"x-{n}", {"group": "x", "tags": (f"t{n % 2}",)}) for n in range(5)), ("a", {}))
    add(store, ("b", {"depends_on": ("a",)}), ("c", {"user": "bob"}))
    leader.move("x-3", *WAY[S.RUNNING])
    assert listed(store, heads_only=True) == ["c", "a", "x-0"]
    assert listed(store, heads_only=True, user="ann") == ["a", "x-0"]
    assert listed(store, heads_only=True, group="x") == ["x-0"]
    assert listed(store, heads_only=True, states=[S.RUNNING]) == [], "filters are about the head itself"
    assert listed(store, heads_only=True, states=[S.QUEUED], limit=2) == ["c", "a"]
    assert listed(store, head="x-0") == ["x-4", "x-3", "x-2", "x-1", "x-0"]
    assert listed(store, head="x-0", tag="t0") == ["x-4", "x-2", "x-0"]
    assert listed(store, head="x-0", states=[S.RUNNING]) == ["x-3"]
    assert listed(store, head="x-0", user="bob") == []
    assert listed(store, head="x-0", heads_only=True) == ["x-0"]
    assert listed(store, head="x-1") == ["x-1"]
    assert listed(store, head="c") == ["c"]
    assert listed(store, head="nobody") == []


@pytest.mark.parametrize("filters", [{"heads_only": True}, {"head": "x-0"}, {"head": "x-0", "user": "ann"}])
def test_pages_of_heads_and_of_members_are_the_list(
    store: Store, leader: Leader, filters: dict[str, Any]
) -> None:
    for n in range(9):
        add(store, (f"x-{n}", {"group": "x"}), (f"alone-{n}", {}))
        leader.move(f"x-{n}", *list(WAY.values())[n])
    whole, before, seen = listed(store, **filters), None, []
    while page := store.jobs.list(**filters, before=before, limit=2):
        seen += [job.submission_id for job in page]
        before = page[-1].seq
    assert seen == whole
    assert len(whole) == (10 if "heads_only" in filters else 9)


def test_the_oldest_job_that_is_left_takes_the_place_of_a_deleted_head(leader: Leader) -> None:
    store = leader.store
    for n in range(4):
        leader.add(f"x-{n}", S.SUCCEEDED, group="x")
    leader.add("after", S.SUCCEEDED, depends_on=("x-0",))
    leader.add("x-4", group="x")

    store.retention.delete(["x-1", "x-0"])
    assert heads(store) == {"x-2": None, "x-3": "x-2", "after": "x-2", "x-4": "x-2"}
    assert store.jobs.member_counts(["x-2"]) == {"x-2": {S.SUCCEEDED: 2, S.QUEUED: 1}}

    store.retention.delete(["x-2", "x-3"])
    assert heads(store) == {"after": "x-4", "x-4": None}, "the group comes before what depends on it"
    assert add(store, ("x-5", {"group": "x"})) == ["x-4"]

    leader.move("x-4", *WAY[S.FAILED])
    leader.move("x-5", *WAY[S.FAILED])
    store.retention.delete(["x-4", "x-5"])
    assert heads(store) == {"after": None}
    assert add(store, ("x-6", {"group": "x"})) == [None]


def test_a_whole_group_can_be_deleted(leader: Leader) -> None:
    for n in range(3):
        leader.add(f"x-{n}", S.SUCCEEDED, group="x")
    leader.store.retention.delete(["x-0", "x-1", "x-2"])
    assert add(leader.store, ("x-0", {"group": "x"})) == [None]


def test_a_pruned_head_is_replaced_too(leader: Leader) -> None:
    for n in range(4):
        ended(leader, f"x-{n}", days_ago=10 - n, group="x")
    assert prune_all(leader.store, keep(jobs_s=8.5 * 86400), now=NOW).jobs == 2
    assert heads(leader.store) == {"x-2": None, "x-3": "x-2"}


def test_a_job_that_stands_for_many_is_pruned_after_them(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 2
    few = has_more_members_than(most).is_(None)
    monkeypatch.setattr(retention, "_STANDS_FOR_FEW", few)
    for n in range(6):
        ended(leader, f"x-{n}", days_ago=10 - n, group="x")
    store = leader.store
    assert store.retention.prune(keep(jobs_s=0.0), now=NOW, limit=1).jobs == 1
    assert heads(store) == {"x-0": None, **{f"x-{n}": "x-0" for n in range(2, 6)}}
    for _ in range(2):
        store.retention.prune(keep(jobs_s=0.0), now=NOW, limit=1)
    assert heads(store) == {"x-0": None, "x-4": "x-0", "x-5": "x-0"}
    store.retention.prune(keep(jobs_s=0.0), now=NOW, limit=1)
    assert heads(store) == {"x-4": None, "x-5": "x-4"}
    assert prune_all(store, keep(jobs_s=0.0), now=NOW).jobs == 2
    assert heads(store) == {}


_JOB = st.tuples(
    st.sampled_from(["ann", "bob"]), st.sampled_from([None, None, "g", "h"]), st.lists(st.integers(0, 30))
)
_STEP = st.one_of(
    st.lists(_JOB, min_size=1, max_size=4), st.sets(st.integers(0, 30), min_size=1, max_size=6), st.just(None)
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_STEP, max_size=8))
def test_whatever_is_added_deleted_and_pruned_each_row_stands_for_its_own(steps: list[Any]) -> None:
    store = open_memory_store()
    leader = Leader(store)
    known: list[str] = []
    for step in steps:
        if isinstance(step, list):
            there = set(heads(store))
            jobs = []
            for user, group, needs in step:
                wanted = (f"j{number}" for number in needs)
                new = {name for name, _ in jobs}
                depends_on = tuple(dict.fromkeys(name for name in wanted if name in there | new))[:2]
                known.append(f"j{len(known)}")
                jobs.append((known[-1], {"user": user, "group": group, "depends_on": depends_on}))
            add(store, *jobs)
        elif step is None:
            store.retention.prune(keep(jobs_s=0.0), now=NOW, limit=3)
        else:
            chosen = [name for name in (f"j{number}" for number in step) if name in heads(store)]
            for name in chosen:
                if not store.jobs.get(name).final:
                    leader.move(name, *WAY[S.SUCCEEDED])
            store.retention.delete(chosen)
        check_rows(store)
    store.close()


def check_rows(store: Store) -> None:
    jobs = {job.submission_id: job for job in store.jobs.list()}
    with store._database.read() as tx:
        assert broken_rules(tx) == []
    rows: dict[tuple[str, str], set[str]] = {}
    for job in jobs.values():
        if job.spec.group is not None:
            rows.setdefault((job.spec.user, job.spec.group), set()).add(job.head or job.submission_id)
    for (_, group), found in rows.items():
        assert len(found) == 1, "a group is one row"
        assert jobs[found.pop()].spec.group == group
