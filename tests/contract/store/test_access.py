"""Tokens, the audit trail, and the terms on which jobs are accepted."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, replace

import pytest
from tests.contract.store.test_retention import keep
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.errors import (
    DependencyProblem,
    DuplicateSubmission,
    InvalidRequest,
    JobNotFound,
    QuotaExceeded,
)
from ray_multicluster_scheduler.model.access import AuditEntry, OpenJobs, Quota, StoredToken, Terms, Token
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.jobs import prune_all
from ray_multicluster_scheduler.store import Store, open_memory_store

DAY = 86400.0
TOKEN = Token(id="t1", user="ann", role="submit", created_at=NOW, expires_at=NOW + 5)
ENTRY = AuditEntry(at=NOW, user="ann", token_id="t1", action="submit", address="10.0.0.7")
FIVE = Terms(quotas={"*": Quota(jobs=5)})


def trail(store: Store) -> list[tuple[str | None, str, str]]:
    return [(entry.user, entry.action, entry.target) for entry in store.access.audit(limit=100)]


def test_a_token_is_kept_until_it_is_revoked_and_then_still_listed(store: Store) -> None:
    assert not store.access.has_tokens()
    store.access.add_token(TOKEN, "d", audit=ENTRY)

    assert store.access.has_tokens()
    assert store.access.token("t1") == StoredToken(**asdict(TOKEN), digest="d")
    assert store.access.token("t2") is None
    revoked = store.access.revoke_token("t1", now=NOW + 1, audit=replace(ENTRY, action="token revoke"))
    again = store.access.revoke_token("t1", now=NOW + 2, audit=replace(ENTRY, action="token revoke"))

    assert revoked.revoked_at == again.revoked_at == NOW + 1
    assert store.access.tokens() == (replace(TOKEN, revoked_at=NOW + 1),)
    assert store.access.has_tokens()


def test_a_token_that_is_not_there_cannot_be_revoked_and_leaves_no_trace(store: Store) -> None:
    with pytest.raises(InvalidRequest, match="no token has the id 'gone'"):
        store.access.revoke_token("gone", now=NOW, audit=ENTRY)

    assert trail(store) == []


def test_the_last_use_is_noted(store: Store) -> None:
    store.access.add_token(TOKEN, "d", audit=ENTRY)
    store.access.touch_token("t1", used_at=NOW)

    assert store.access.tokens()[0].used_at == NOW


def test_a_store_has_one_key_for_the_tokens_of_jobs_and_another_store_another(store: Store) -> None:
    key = store.access.job_key()

    assert len(key) == 32
    assert store.access.job_key() == key
    with closing(open_memory_store()) as other:
        assert other.access.job_key() != key


def test_what_is_accepted_is_in_the_audit_trail_and_what_is_refused_is_not(store: Store) -> None:
    terms = Terms(audit=ENTRY)
    store.jobs.add([("a", a_spec()), ("b", a_spec())], now=NOW, terms=terms)
    with pytest.raises(DuplicateSubmission):
        store.jobs.add([("a", a_spec())], now=NOW, terms=terms)
    store.jobs.request_stop(["a"], now=NOW, reason="why", audit=replace(ENTRY, action="stop", target="a"))
    with pytest.raises(JobNotFound):
        store.jobs.request_stop(["x"], now=NOW, reason="why", audit=replace(ENTRY, action="stop", target="x"))
    store.clusters.set_drained(
        "c", drained=True, reason="", now=NOW, audit=replace(ENTRY, action="drain", target="c")
    )

    assert trail(store) == [("ann", "drain", "c"), ("ann", "stop", "a"), ("ann", "submit", "a b")]
    assert store.access.audit(limit=1)[0].address == "10.0.0.7"


def test_the_audit_trail_of_a_repeated_submission_names_the_job_that_was_there(store: Store) -> None:
    spec = a_spec(idempotency_key="k")
    store.jobs.add([("first", spec)], now=NOW, terms=Terms(audit=ENTRY))
    store.jobs.add([("second", spec)], now=NOW, terms=Terms(audit=ENTRY))

    assert trail(store) == [("ann", "submit", "first")] * 2


def test_the_audit_trail_is_read_in_pages_and_by_user(store: Store) -> None:
    store.access.record([replace(ENTRY, target=str(number)) for number in range(5)])
    store.access.record([replace(ENTRY, user=None, action="login")])

    newest = store.access.audit(limit=2)
    rest = store.access.audit(limit=10, before=newest[-1].id)

    assert [entry.action for entry in newest] == ["login", "submit"]
    assert [entry.target for entry in rest] == ["3", "2", "1", "0"]
    assert len(store.access.audit(user="ann", limit=10)) == 5


def test_old_entries_of_the_audit_trail_go_and_so_do_too_many(store: Store) -> None:
    store.access.record([replace(ENTRY, at=NOW - 3 * DAY, target="old")])
    store.access.record([replace(ENTRY, target=str(number)) for number in range(5)])

    prune_all(store, keep(audit_s=DAY), now=NOW)
    assert [entry.target for entry in store.access.audit(limit=9)] == ["4", "3", "2", "1", "0"]
    prune_all(store, keep(audit=2), now=NOW)
    assert [entry.target for entry in store.access.audit(limit=9)] == ["4", "3"]


def test_nobody_has_more_open_jobs_than_the_quota(store: Store, leader: Leader) -> None:
    store.jobs.add([(f"j{n}", a_spec()) for n in range(5)], now=NOW, terms=FIVE)
    with pytest.raises(QuotaExceeded, match=r"has 5 open job.s. and would have 6; the quota is 5"):
        store.jobs.add([("more", a_spec())], now=NOW, terms=FIVE)
    leader.move("j0", JobState.PLACED, JobState.SUBMITTED, JobState.SUCCEEDED)

    assert store.jobs.add([("more", a_spec())], now=NOW, terms=FIVE)


def test_the_open_jobs_of_each_user_are_counted_with_what_they_claim(store: Store, leader: Leader) -> None:
    assert store.jobs.open_jobs() == {}
    two = a_spec(requirements={"CPU": 2.0, "GPU": 1.0})
    store.jobs.add([("a0", two), ("a1", two), ("b0", a_spec(user="bob"))], now=NOW)
    store.jobs.add([("over", a_spec(user="cy"))], now=NOW)
    leader.move("over", JobState.PLACED, JobState.SUBMITTED, JobState.SUCCEEDED)
    leader.move("a1", JobState.PLACED)

    assert store.jobs.open_jobs() == {
        "ann": OpenJobs(count=2, claim={"CPU": 4.0, "GPU": 2.0}),
        "bob": OpenJobs(count=1, claim={"CPU": 1.0}),
    }


def test_all_of_a_call_or_nothing_is_within_the_quota(store: Store) -> None:
    with pytest.raises(QuotaExceeded):
        store.jobs.add([(f"j{n}", a_spec()) for n in range(6)], now=NOW, terms=FIVE)

    assert store.jobs.list() == ()


def test_a_named_user_has_a_quota_of_its_own_and_others_do_not_count(store: Store) -> None:
    terms = Terms(quotas={"*": Quota(jobs=1), "ann": Quota(jobs=2), "root": Quota()})
    store.jobs.add([(f"r{n}", a_spec(user="root")) for n in range(9)], now=NOW, terms=terms)
    store.jobs.add([(f"a{n}", a_spec(user="ann")) for n in range(2)], now=NOW, terms=terms)
    store.jobs.add([("b", a_spec(user="bob"))], now=NOW, terms=terms)

    with pytest.raises(QuotaExceeded, match="'bob' has 1"):
        store.jobs.add([("b2", a_spec(user="bob"))], now=NOW, terms=terms)


def test_a_user_with_a_quota_of_no_jobs_is_shut_out(store: Store) -> None:
    store.jobs.add([("before", a_spec(user="ann"))], now=NOW)
    terms = Terms(quotas={"ann": Quota(jobs=0)})

    with pytest.raises(QuotaExceeded, match="the quota is 0"):
        store.jobs.add([("child", a_spec(user="ann", parent="before"))], now=NOW, terms=terms)
    assert store.jobs.add([("his", a_spec(user="bob"))], now=NOW, terms=terms)


def test_a_repeated_submission_is_no_further_job(store: Store) -> None:
    terms = Terms(quotas={"*": Quota(jobs=1)})
    spec = a_spec(idempotency_key="k")
    (first,) = store.jobs.add([("first", spec)], now=NOW, terms=terms)

    assert store.jobs.add([("second", spec)], now=NOW, terms=terms) == (first,)


def test_claims_of_open_jobs_are_limited_by_resource(store: Store, leader: Leader) -> None:
    terms = Terms(quotas={"*": Quota(resources={"GPU": 2.0})})
    store.jobs.add([("a", a_spec(requirements={"GPU": 1.5}))], now=NOW, terms=terms)
    with pytest.raises(QuotaExceeded, match=r"claim 1\.5 GPU and would claim 2\.5 GPU; the quota is 2 GPU"):
        store.jobs.add([("b", a_spec(requirements={"GPU": 1.0}))], now=NOW, terms=terms)

    store.jobs.add([("cpu", a_spec(requirements={"CPU": 99.0}))], now=NOW, terms=terms)
    leader.move("a", JobState.PLACED, JobState.FAILED)
    assert store.jobs.add([("b", a_spec(requirements={"GPU": 2.0}))], now=NOW, terms=terms)


def test_fifty_callers_at_once_do_not_pass_a_quota(store: Store) -> None:
    start = threading.Barrier(50)

    def submit(number: int) -> bool:
        start.wait()
        try:
            store.jobs.add([(f"j{number}", a_spec())], now=NOW, terms=FIVE)
        except QuotaExceeded:
            return False
        return True

    with ThreadPoolExecutor(50) as pool:
        accepted = list(pool.map(submit, range(50)))

    assert sum(accepted) == 5
    assert len(store.jobs.list()) == 5


def test_a_job_that_the_caller_cannot_see_is_unknown_as_a_dependency(store: Store) -> None:
    store.jobs.add([("hers", a_spec(user="ann"))], now=NOW)
    mine = Terms(only="bob")
    refusals = []
    for needed in ("hers", "nothing"):
        with pytest.raises(DependencyProblem) as refused:
            store.jobs.add([("job", a_spec(user="bob", depends_on=(needed,)))], now=NOW, terms=mine)
        refusals.append(str(refused.value).replace(needed, "X"))

    assert refusals[0] == refusals[1]
    store.jobs.add([("his", a_spec(user="bob"))], now=NOW, terms=mine)
    assert store.jobs.add([("job", a_spec(user="bob", depends_on=("his",)))], now=NOW, terms=mine)


def test_of_another_users_id_only_that_it_is_taken_is_told(store: Store) -> None:
    store.jobs.add([("hers", a_spec(user="ann"))], now=NOW)

    with pytest.raises(DuplicateSubmission) as refused:
        store.jobs.add([("hers", a_spec(user="bob"))], now=NOW)

    assert str(refused.value) == "submission id 'hers' already exists; choose another one"


def test_counts_and_events_can_be_of_one_user(store: Store) -> None:
    store.jobs.add([("a", a_spec(user="ann")), ("b", a_spec(user="bob"))], now=NOW)
    store.jobs.add([("c", a_spec(user="bob"))], now=NOW)

    assert store.jobs.counts([JobState.QUEUED], user="bob") == {JobState.QUEUED: 2}
    assert [event.submission_id for event in store.history.events(user="bob", limit=1)] == ["b"]
    assert [event.submission_id for event in store.history.events(user="ann")] == ["a"]
