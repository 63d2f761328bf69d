"""A batch of jobs is accepted as one: the clusters are looked at once, and one bad job refuses all."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from tests.support.builders import NOW, a_cluster, a_snapshot
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.errors import InvalidRequest, NeverFits
from ray_multicluster_scheduler.executors.registry import Registry
from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.service.admission import SURE_FOR_S
from ray_multicluster_scheduler.service.events import EventHub
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.service import JobService
from ray_multicluster_scheduler.store import Store, open_memory_store


@pytest.fixture
def store() -> Store:
    store = open_memory_store()
    lease = store.leases.acquire("leader", ttl_s=60, now=NOW)
    assert lease
    store.clusters.save_snapshots([a_snapshot("a")], epoch=lease.epoch)
    return store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def service(store: Store, tmp_path: Path, clock: ManualClock) -> JobService:
    config = Config(path=tmp_path / "clusters.yaml", clusters=(a_cluster("a"),), settings=Settings())
    return JobService(config, store, clock, EventHub(store, clock), Registry())


def asks_for(cpus: float) -> JobRequest:
    return JobRequest(entrypoint="true", user="ann", resource_requirements={"CPU": cpus})


def test_the_snapshots_are_read_once_for_a_whole_batch(store: Store, service: JobService) -> None:
    statements: list[str] = []
    event.listen(
        store._database._engine,
        "before_cursor_execute",
        lambda _c, _cursor, statement, *_: statements.append(statement),
    )
    assert len(service.submit([asks_for(1), asks_for(2), asks_for(1)])) == 3
    assert sum("FROM snapshots" in statement for statement in statements) == 1


def test_one_job_that_never_fits_is_told_and_none_is_accepted(store: Store, service: JobService) -> None:
    with pytest.raises(NeverFits, match="64"):
        service.submit([asks_for(1), asks_for(64)])
    assert store.jobs.list() == ()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("entrypoint", {"entrypoint": "cat \udcff"}),
        ("job_id", {"job_id": "\ud800"}),
        ("runtime_env", {"runtime_env": {"env_vars": {"NAME": "\udcff"}}}),
        ("runtime_env", {"runtime_env": {"config": {"setup_timeout_seconds": object()}}}),
        ("tags", {"tags": ["\udcff"]}),
        ("resource_requirements", {"resource_requirements": {"\udcff": 1}}),
        ("resource_requirements", {"resource_requirements": {"CPU": 10**400}}),
        ("resource_requirements", {"resource_requirements": 5}),
        ("entrypoint_resources", {"entrypoint_resources": {"disk": 10**400}}),
        ("entrypoint_resources", {"entrypoint_resources": {"disk": -1}}),
        ("entrypoint_num_cpus", {"entrypoint_num_cpus": 10**400}),
        ("entrypoint_num_gpus", {"entrypoint_num_gpus": float("nan")}),
        ("entrypoint_memory", {"entrypoint_memory": 2**63}),
        ("job_id", {"job_id": 5}),
        ("user", {"user": ["ann"]}),
        ("group", {"group": ["a"]}),
        ("group", {"group": "a\0"}),
        ("idempotency_key", {"idempotency_key": 7}),
        ("preferred_cluster", {"preferred_cluster": 10**400}),
        ("tags", {"tags": 5}),
        ("tags", {"tags": [["a"]]}),
        ("depends_on", {"depends_on": 10**400}),
        ("priority", {"priority": 2**63}),
        ("priority", {"priority": 1.5}),
        ("max_retries", {"max_retries": 10**400}),
        ("timeout_s", {"timeout_s": 10**400}),
        ("queue_timeout_s", {"queue_timeout_s": float("inf")}),
        ("on_unreachable", {"on_unreachable": [5]}),
        ("on_unreachable", {"on_unreachable": 10**400}),
        ("metadata", {"metadata": {"a": 10**5000}}),
        ("metadata", {"metadata": {"a": "x" * 100_000}}),
        ("metadata", {"metadata": {"a\0": "x"}}),
        ("runtime_env", {"runtime_env": 5}),
        ("runtime_env", {"runtime_env": {"env_vars": {"NAME": "x" * 2_000_000}}}),
        ("submission_id", {"submission_id": 10**400}),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_name(
    store: Store, service: JobService, name: str, given: dict[str, Any]
) -> None:
    """A job that the store cannot hold would stop the engine for all others when it is placed."""
    with pytest.raises(InvalidRequest, match=f"^{name}[ :]"):
        service.submit([JobRequest(**{"entrypoint": "true", "user": "ann", **given})])
    assert store.jobs.list() == ()


def test_who_waits_for_many_jobs_reads_only_those_that_have_moved(
    store: Store, service: JobService, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [job.submission_id for job in service.submit([asks_for(1)] * 3)]
    changes = service.changes(ids, timeout_s=None, tick_s=60.0)
    assert [job.target for job in next(changes).values()] == [Target.FINISHED] * 3
    read: list[str] = []
    get_many = store.jobs.get_many
    monkeypatch.setattr(store.jobs, "get_many", lambda ids: read.extend(ids) or get_many(ids))

    store.jobs.request_stop(ids[1:2], now=NOW, reason="enough")

    jobs = next(changes)
    assert [jobs[each].target for each in ids] == [Target.FINISHED, Target.STOPPED, Target.FINISHED]
    assert read == ids[1:2]


def test_who_waits_reads_nothing_about_the_jobs_of_others(
    store: Store, service: JobService, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine,) = service.submit([asks_for(1)])
    changes = service.changes([mine.submission_id], timeout_s=None, tick_s=60.0)
    assert next(changes).keys() == {mine.submission_id}
    read: list[str] = []
    get_many = store.jobs.get_many
    monkeypatch.setattr(store.jobs, "get_many", lambda ids: read.extend(ids) or get_many(ids))
    monkeypatch.setattr(store.history, "events", lambda *_, **__: read.append("all events"))

    for _ in range(300):
        service.submit([asks_for(1)])
    store.jobs.request_stop([mine.submission_id], now=NOW, reason="enough")

    assert next(changes)[mine.submission_id].target is Target.STOPPED
    assert set(read) == {mine.submission_id}


def test_who_waits_is_told_of_each_move_and_of_the_end(store: Store, service: JobService) -> None:
    mine, other = (service.submit([asks_for(1)])[0].submission_id for _ in range(2))
    told = []
    for jobs in service.changes([mine, other], timeout_s=None, tick_s=0.01):
        told.append([jobs[each].target for each in (mine, other)])
        if len(told) == 1:
            service.stop([other])
        elif told[-1] == [Target.FINISHED, Target.STOPPED]:
            break
    assert told[0] == [Target.FINISHED, Target.FINISHED]


@pytest.fixture
def lease_epoch(store: Store) -> int:
    leader = store.leases.current(now=NOW)
    assert leader
    return leader.epoch


def test_a_job_like_one_before_asks_only_a_cluster_that_could_take_that(
    store: Store, lease_epoch: int, tmp_path: Path, clock: ManualClock
) -> None:
    clusters = tuple(a_cluster(f"c{number}") for number in range(20))
    store.clusters.save_snapshots([a_snapshot(each.name) for each in clusters], epoch=lease_epoch)
    config = Config(path=tmp_path / "clusters.yaml", clusters=clusters, settings=Settings())
    many = JobService(config, store, clock, EventHub(store, clock), Registry())
    many.submit([asks_for(1)])
    asked: list[object] = []
    event.listen(
        store._database._engine,
        "before_cursor_execute",
        lambda _c, _cursor, statement, values, *_: (
            asked.append(values) if "FROM snapshots" in statement else None
        ),
    )
    many.submit([asks_for(1)])
    assert asked == []  # just now it could
    clock.advance(SURE_FOR_S)
    many.submit([asks_for(1)])
    assert [len(values) for values in asked] == [1]  # type: ignore[arg-type]


def test_a_cluster_that_has_shrunk_since_is_no_reason_to_accept(
    store: Store, service: JobService, lease_epoch: int, clock: ManualClock
) -> None:
    service.submit([asks_for(4)])
    store.clusters.save_snapshots([a_snapshot("a", {"CPU": 2.0})], epoch=lease_epoch)
    clock.advance(SURE_FOR_S)
    with pytest.raises(NeverFits):
        service.submit([asks_for(4)])


@pytest.mark.parametrize(
    ("asked", "claim"),
    [
        (None, {"CPU": 1.0}),
        ({"GPU": 0}, {"CPU": 1.0}),
        ({"CPU": 0}, {}),
        ({"CPU": 0, "GPU": 1}, {"GPU": 1.0}),
        ({"CPU": 0.5}, {"CPU": 0.5}),
    ],
    ids=str,
)
def test_a_job_claims_one_cpu_unless_it_says_otherwise(
    service: JobService, store: Store, lease_epoch: int, asked: Any, claim: dict[str, float]
) -> None:
    store.clusters.save_snapshots([a_snapshot("a", {"CPU": 4.0, "GPU": 1.0})], epoch=lease_epoch)
    (job,) = service.submit([JobRequest(entrypoint="true", user="ann", resource_requirements=asked)])
    assert store.jobs.get(job.submission_id).spec.claim == claim
