"""History has an end: secrets go first, then logs, then whole jobs; what is still needed stays."""

import json
from typing import Any

import pytest
from tests.support.builders import NOW, a_spec
from tests.support.leader import Leader

from ray_multicluster_scheduler.environment.redact import REDACTED
from ray_multicluster_scheduler.errors import DependencyProblem, InvalidRequest, JobNotFound, LeaseLost
from ray_multicluster_scheduler.model.result import LeftResult
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.model.storage import Keep, Pruned
from ray_multicluster_scheduler.service.jobs import prune_all
from ray_multicluster_scheduler.store import Store

S = JobState
DAY = 86400.0
KEEP_ALL = {
    "jobs_s": 1e9,
    "logs_s": 1e9,
    "secrets_s": 1e9,
    "audit_s": 1e9,
    "jobs": 10**6,
    "audit": 10**6,
    "size_bytes": 10**12,
}


def keep(**changes: Any) -> Keep:
    return Keep(**{**KEEP_ALL, **changes})


def ids(store: Store) -> list[str]:
    return sorted(job.submission_id for job in store.jobs.list())


@pytest.fixture
def leader(store: Store) -> Leader:
    return Leader(store)


def ended(leader: Leader, submission_id: str, *, days_ago: float, log: str = "text", **spec: Any) -> None:
    """Let a job end so long ago, with a log."""
    at = NOW - days_ago * DAY
    leader.store.jobs.add([(submission_id, a_spec(**spec))], now=at)
    leader.move(submission_id, S.PLACED, S.RUNNING, now=at)
    leader.move(submission_id, S.SUCCEEDED, now=at)
    leader.store.jobs.apply([], epoch=leader.lease.epoch, now=at, logs=[(submission_id, 1, log)])


@pytest.mark.parametrize("late", [DAY, 5 * DAY])
def test_what_is_noticed_late_is_not_passed_over(leader: Leader, late: float) -> None:
    """Secrets and logs go in the order of the ends: an end may be found after later ones were done with."""
    store, secret = leader.store, {"env_vars": {"API_TOKEN": "s3cret"}}
    rules = keep(secrets_s=DAY, logs_s=2 * DAY)
    for name, days_ago in (("before", 9), ("after", 3)):
        ended(leader, name, days_ago=days_ago, runtime_env=secret)
    store.jobs.add([("late", a_spec(runtime_env=secret))], now=NOW - 10 * DAY)
    leader.move("late", S.PLACED, S.RUNNING, now=NOW - 10 * DAY)
    assert prune_all(store, rules, now=NOW) == Pruned(secrets=2, logs=2)

    leader.move("late", S.SUCCEEDED, now=NOW, ended_at=NOW - DAY - late, end_unreported=False)
    store.jobs.apply([], epoch=leader.lease.epoch, now=NOW, logs=[("late", 1, "text")])

    assert store.jobs.get("late").ended_at == NOW - DAY - late
    pruned = prune_all(store, rules, now=NOW)
    assert (pruned.secrets, pruned.logs) == (1, 1)
    assert "s3cret" not in str(store.jobs.get("late").spec)
    assert prune_all(store, rules, now=NOW) == Pruned()


@pytest.mark.parametrize("rule", [{"jobs_s": 2.5 * DAY}, {"size_bytes": 2**20 + 2**19}])
def test_a_result_stays_as_long_as_its_job_and_counts_for_the_size(
    leader: Leader, rule: dict[str, float], request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["store"] == "postgres" and "size_bytes" in rule:
        return  # the server does not tell how much of its files is in use
    store = leader.store
    for name, days_ago in (("old", 3.0), ("young", 2.0)):
        ended(leader, name, days_ago=days_ago)
        large = LeftResult(content=b"x" * 2**20)
        store.jobs.apply([], epoch=leader.lease.epoch, now=NOW, results=[(name, 1, large)])

    assert prune_all(store, keep(logs_s=DAY), now=NOW) == Pruned(logs=2)
    assert store.history.load_result("old") == (1, large)

    assert prune_all(store, keep(**rule), now=NOW).jobs == 1
    assert store.history.load_result("old") is None
    assert store.history.load_result("young") == (1, large)


def test_jobs_that_ended_long_ago_go_with_all_that_is_about_them(leader: Leader) -> None:
    store = leader.store
    ended(leader, "old", days_ago=91, tags=("nightly",))
    ended(leader, "young", days_ago=89, tags=("nightly",))

    assert prune_all(store, keep(jobs_s=90 * DAY), now=NOW) == Pruned(jobs=1, logs=1)

    assert ids(store) == ["young"]
    with pytest.raises(JobNotFound):
        store.jobs.get("old")
    assert store.history.events("old") == store.history.attempts("old") == ()
    assert store.history.load_log("old") is None
    assert len(store.history.events("young")) == 4
    assert store.history.load_log("young") == "text"
    assert [job.submission_id for job in store.jobs.list(tag="nightly")] == ["young"]


def test_of_too_many_the_newest_stay(leader: Leader) -> None:
    for number in range(6):
        ended(leader, f"job-{number}", days_ago=6 - number)
    leader.add("open")

    assert prune_all(leader.store, keep(jobs=2), now=NOW).jobs == 4

    assert ids(leader.store) == ["job-4", "job-5", "open"]


def test_of_too_many_those_users_lose_some_who_have_the_most(leader: Leader) -> None:
    ended(leader, "bob", days_ago=30, user="bob")
    for number in range(6):
        ended(leader, f"ann-{number}", days_ago=6 - number)
        ended(leader, f"eve-{number}", days_ago=6 - number, user="eve")
    leader.store.jobs.add([(f"open-{n}", a_spec(user="bob")) for n in range(9)], now=NOW)

    would_go = leader.store.retention.prunable(keep(jobs=5), now=NOW)
    gone = prune_all(leader.store, keep(jobs=5), now=NOW)

    assert (gone.jobs, gone.logs) == (would_go.jobs, would_go.logs) == (8, 8)
    left = [name for name in ids(leader.store) if not name.startswith("open")]
    assert left == ["ann-4", "ann-5", "bob", "eve-4", "eve-5"]


@pytest.mark.parametrize("state", [S.QUEUED, S.PLACED, S.RUNNING, S.UNREACHABLE])
def test_what_has_not_ended_stays_however_old_it_is(leader: Leader, state: JobState) -> None:
    leader.add("open", state)

    assert prune_all(leader.store, keep(jobs_s=0, jobs=0, size_bytes=0), now=NOW + 1000 * DAY) == Pruned()

    assert ids(leader.store) == ["open"]


def test_what_an_open_job_waits_for_stays(leader: Leader) -> None:
    store = leader.store
    leader.add("first", S.FAILED)
    leader.add("other", S.FAILED)
    store.jobs.add([("waits", a_spec(depends_on=("first",)))], now=NOW)

    prune_all(store, keep(jobs_s=0), now=NOW + DAY)
    assert ids(store) == ["first", "waits"]

    leader.move("waits", S.FAILED)
    prune_all(store, keep(jobs_s=0), now=NOW + DAY)
    assert ids(store) == []


def test_logs_go_before_their_jobs(leader: Leader) -> None:
    ended(leader, "old", days_ago=31)
    ended(leader, "young", days_ago=29)

    assert prune_all(leader.store, keep(logs_s=30 * DAY), now=NOW) == Pruned(logs=1)

    assert leader.store.history.load_log("old") is None
    assert leader.store.history.load_log("young") == "text"
    assert ids(leader.store) == ["old", "young"]
    assert prune_all(leader.store, keep(logs_s=30 * DAY), now=NOW) == Pruned()


def test_a_store_that_is_too_large_loses_logs_then_jobs(
    leader: Leader, request: pytest.FixtureRequest
) -> None:
    store = leader.store
    for number in range(20):
        ended(leader, f"job-{number:02}", days_ago=20 - number, log="x" * 100_000)
    if request.node.callspec.params["store"] == "postgres":
        # The server does not tell how much of its files is in use; its administrator limits its size.
        assert prune_all(store, keep(size_bytes=0), now=NOW) == Pruned()
        return
    full = store.retention.space().used_bytes

    some = prune_in_steps_of(store, 1, keep(size_bytes=full - 500_000))
    assert 3 <= some.logs <= 7  # no more than needed, the oldest first
    assert some.jobs == 0
    assert store.history.load_log("job-00") is None
    assert store.history.load_log("job-19") is not None

    most = prune_all(store, keep(size_bytes=0), now=NOW)
    assert (most.jobs, some.logs + most.logs) == (20, 20)


@pytest.mark.parametrize("store", ["memory", "sqlite"], indirect=True)
def test_a_user_with_large_jobs_pushes_nobody_elses_history_out(leader: Leader) -> None:
    store, large = leader.store, {"env_vars": {"DATA": "x" * 500_000}}
    ended(leader, "bob", days_ago=30, log="b" * 10_000, user="bob")
    before = store.retention.space().used_bytes
    for number in range(12):
        ended(leader, f"ann-{number:02}", days_ago=1, runtime_env=large)
    store.jobs.add([(f"open-{n}", a_spec(user="ann", runtime_env=large)) for n in range(2)], now=NOW)

    gone = prune_all(store, keep(size_bytes=before + 4_000_000), now=NOW)

    assert gone.logs == 12  # of the same user, and first
    assert 5 <= gone.jobs <= 7  # no more than needed
    assert store.history.load_log("bob") is not None
    prune_all(store, keep(size_bytes=0), now=NOW - 2 * DAY)
    assert store.history.load_log("bob") is None


@pytest.mark.parametrize("store", ["memory", "sqlite"], indirect=True)
def test_a_user_whose_large_jobs_are_open_keeps_nobody_elses_history_for_ever(leader: Leader) -> None:
    store, large = leader.store, {"env_vars": {"DATA": "x" * 500_000}}
    ended(leader, "bob", days_ago=30, log="b" * 10_000, user="bob")
    store.jobs.add([(f"open-{n}", a_spec(user="ann", runtime_env=large)) for n in range(4)], now=NOW)
    prune_all(store, keep(size_bytes=0), now=NOW)
    assert ids(store) == [f"open-{n}" for n in range(4)]


def test_the_number_is_kept_though_those_who_have_the_most_have_none_that_may_go(leader: Leader) -> None:
    needed = [f"needed-{n}" for n in range(5)]
    for each in needed:
        leader.add(each, S.FAILED)
    ended(leader, "bob", days_ago=30, user="bob")
    leader.store.jobs.add([("waits", a_spec(depends_on=tuple(needed)))], now=NOW)
    prune_all(leader.store, keep(jobs=5), now=NOW + DAY)
    assert ids(leader.store) == [*needed, "waits"]


def prune_in_steps_of(store: Store, limit: int, rules: Keep) -> Pruned:
    logs = jobs = 0
    while (step := store.retention.prune(rules, now=NOW, limit=limit)).more:
        logs, jobs = logs + step.logs, jobs + step.jobs
    return Pruned(logs=logs, jobs=jobs)


def test_secrets_of_ended_jobs_go_first_and_everything_else_stays(leader: Leader) -> None:
    store = leader.store
    env = {"env_vars": {"API_KEY": "hunter2222", "MODE": "fast"}, "pip": ["requests"]}
    store.jobs.add(
        [("job", a_spec(entrypoint="run --key hunter2222", runtime_env=env, metadata={"k": "v"}))], now=NOW
    )
    composed = {"env_vars": {**env["env_vars"], "CLUSTER_TOKEN": "of-the-cluster"}}  # type: ignore[dict-item]
    leader.move(
        "job", S.PLACED, attempt_changes={"entrypoint": "run --key hunter2222", "runtime_env": composed}
    )
    leader.move("job", S.FAILED, reason="it said hunter2222 and of-the-cluster")
    store.jobs.apply([], epoch=leader.lease.epoch, now=NOW, logs=[("job", 1, "key=hunter2222\nmode=fast\n")])

    assert prune_all(store, keep(secrets_s=DAY), now=NOW + DAY / 2) == Pruned()
    assert store.jobs.get("job").spec.runtime_env == env
    assert prune_all(store, keep(secrets_s=DAY), now=NOW + 2 * DAY) == Pruned(secrets=1)

    job, (attempt,) = store.jobs.get("job"), store.history.attempts("job")
    kept = json.dumps([str(job), str(attempt), str(store.history.events("job"))])
    assert "hunter2222" not in kept
    assert "of-the-cluster" not in kept
    assert job.spec.runtime_env == {"env_vars": {"API_KEY": REDACTED, "MODE": "fast"}, "pip": ["requests"]}
    assert job.spec.entrypoint == f"run --key {REDACTED}"
    assert job.spec.metadata == {"k": "v"}
    assert attempt.runtime_env["env_vars"]["MODE"] == "fast"
    assert store.history.load_log("job") == f"key={REDACTED}\nmode=fast\n"
    assert prune_all(store, keep(secrets_s=DAY), now=NOW + 2 * DAY) == Pruned()


@pytest.mark.parametrize(
    "env", [{"env_vars": {"API_KEY": "hunter2222"}}, {"pip": ["--index-url", "https://me:hunter2222@host/"]}]
)
def test_a_job_without_its_secrets_is_not_accepted_again(leader: Leader, env: dict[str, Any]) -> None:
    ended(leader, "job", days_ago=5, runtime_env=env)
    again = leader.store.jobs.get("job").spec
    leader.store.jobs.add([("in-time", again)], now=NOW)
    prune_all(leader.store, keep(secrets_s=DAY), now=NOW)

    with pytest.raises(InvalidRequest, match=r"'too-late' holds '<redacted>' .* keep_secrets_days"):
        leader.store.jobs.add([("too-late", leader.store.jobs.get("job").spec)], now=NOW)


def test_secrets_of_jobs_that_may_still_run_stay(leader: Leader) -> None:
    env = {"env_vars": {"API_KEY": "hunter2222"}}
    leader.add("open", S.RUNNING, runtime_env=env)

    prune_all(leader.store, keep(secrets_s=0), now=NOW + 1000 * DAY)

    assert leader.store.jobs.get("open").spec.runtime_env == env


def test_jobs_that_ended_together_are_not_forgotten_at_the_edge_of_a_step(leader: Leader) -> None:
    env = {"env_vars": {"API_KEY": "hunter2222"}}
    for number in range(7):
        ended(leader, f"job-{number}", days_ago=5, runtime_env=env)
    steps = []

    while (step := leader.store.retention.prune(keep(secrets_s=DAY, logs_s=DAY), now=NOW, limit=2)).more:
        steps.append(step)

    assert sum(step.secrets for step in steps) == 7
    assert sum(step.logs for step in steps) == 7


def test_what_would_go_is_counted_before(leader: Leader) -> None:
    for number in range(6):
        ended(leader, f"job-{number}", days_ago=60 - 10 * number)
    leader.add("open")
    rules = keep(jobs_s=45 * DAY, logs_s=25 * DAY, jobs=5)

    counted = leader.store.retention.prunable(rules, now=NOW)

    assert (counted.jobs, counted.logs) == (2, 4)
    assert len(ids(leader.store)) == 7
    pruned = prune_all(leader.store, rules, now=NOW)
    assert (pruned.jobs, pruned.logs) == (2, 4)


def test_a_former_leader_prunes_nothing(leader: Leader) -> None:
    ended(leader, "old", days_ago=91)

    with pytest.raises(LeaseLost):
        leader.store.retention.prune(keep(jobs_s=0), now=NOW, limit=10, epoch=leader.lease.epoch - 1)

    assert ids(leader.store) == ["old"]


def test_the_key_of_a_job_that_is_gone_makes_a_new_one(leader: Leader) -> None:
    ended(leader, "old", days_ago=91, idempotency_key="nightly")
    prune_all(leader.store, keep(jobs_s=90 * DAY), now=NOW)

    (job,) = leader.store.jobs.add([("new", a_spec(idempotency_key="nightly"))], now=NOW)

    assert job.submission_id == "new"


def test_a_deleted_job_is_gone_with_all_that_is_about_it_and_its_id_is_free(leader: Leader) -> None:
    store = leader.store
    ended(leader, "gone", days_ago=0, tags=("nightly",))
    ended(leader, "stays", days_ago=0, tags=("nightly",))
    before = store.jobs.get("gone").seq

    store.retention.delete(["gone"])

    assert ids(store) == ["stays"]
    assert (store.history.attempts("gone"), store.history.events("gone"), store.history.load_log("gone")) == (
        (),
        (),
        None,
    )
    assert [job.submission_id for job in store.jobs.list(tag="nightly")] == ["stays"]
    (again,) = store.jobs.add([("gone", a_spec())], now=NOW)
    assert again.seq > before


@pytest.mark.parametrize("state", [state for state in S if state not in FINAL])
def test_a_job_that_has_not_ended_is_not_deleted(leader: Leader, state: JobState) -> None:
    ended(leader, "old", days_ago=0)
    leader.add("open", state)
    with pytest.raises(InvalidRequest, match=f"'open' is {state.value} and can be deleted when it has ended"):
        leader.store.retention.delete(["old", "open"])
    assert ids(leader.store) == ["old", "open"]


def test_a_job_that_others_wait_for_is_not_deleted(leader: Leader) -> None:
    leader.add("first", S.FAILED)
    leader.add("second", depends_on=("first",))
    with pytest.raises(DependencyProblem, match="'first' cannot be deleted while other jobs wait for it"):
        leader.store.retention.delete(["first"])
    leader.move("second", S.STOPPED)
    leader.store.retention.delete(["first"])
    assert ids(leader.store) == ["second"]


def test_of_several_of_which_one_is_unknown_none_is_deleted(leader: Leader) -> None:
    ended(leader, "old", days_ago=0)
    with pytest.raises(JobNotFound, match="nope"):
        leader.store.retention.delete(["old", "nope"])
    assert ids(leader.store) == ["old"]
