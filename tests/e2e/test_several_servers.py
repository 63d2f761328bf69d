"""Three servers, one PostgreSQL, two clusters: servers and database are killed while six programs submit."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.e2e.task_world import PROGRAMS
from tests.support.postgres import PostgresServer, a_postgres
from tests.support.processes import parent_of
from tests.support.serve_process import ServeProcess
from tests.support.waiting import until

from ray_multicluster_scheduler.errors import StoreError
from ray_multicluster_scheduler.local import HeadSpec, Sandbox
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.store import Store
from ray_multicluster_scheduler.store.postgres.database import postgres_address
from ray_multicluster_scheduler.store.postgres.opening import open_postgres_store

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(3600)]

HEADS = [HeadSpec(name="left", cpus=2), HeadSpec(name="right", cpus=2)]
SERVERS = 3
SUBMITTERS = 6
JOBS = 300
LEASE_TTL_S = 5.0
#: Of each submitter between two jobs, on average: they must not be done before the faults begin.
PAUSE_S = 8.0
#: For all jobs together, on a slow machine.
PATIENCE_S = 2700.0


class ServerProcess(ServeProcess):
    """`raymc serve` on the shared store, with a home of its own."""

    def __init__(self, folder: Path, config: Path, store: str) -> None:
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("RAY_", "RAYMC_"))}
        environ = {**clean, "RAY_MULTICLUSTER_HOME": str(folder / "home")}
        # The database may be away: then it is started again, as by a service manager.
        super().__init__(folder, config, environ, "--store", store, is_kept_up=True)


@dataclass
class World:
    sandbox: Sandbox
    postgres: PostgresServer
    servers: list[ServerProcess]
    store: Store
    folder: Path

    def leader(self) -> ServerProcess | None:
        """Return the server whose child schedules."""
        parent = parent_of(self.scheduler_pid())
        return next((server for server in self.servers if server.process.pid == parent), None)

    def scheduler_pid(self) -> int | None:
        with suppress(StoreError):
            lease = self.store.leases.current(now=time.time())
            return None if lease is None else int(lease.holder.split(":")[1])
        return None

    def ended(self) -> int:
        with suppress(StoreError):
            return sum(self.store.jobs.counts(FINAL).values())
        return -1


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_postgres() as postgres, Sandbox(tmp_path / "sandbox", HEADS) as sandbox:
        clusters = {
            spec.name: {
                "head_address": sandbox.heads[spec.name].client_address,
                "dashboard": sandbox.heads[spec.name].dashboard,
            }
            for spec in sandbox.specs
        }
        config = tmp_path / "clusters.yaml"
        config.write_text(yaml.safe_dump({"clusters": clusters, "scheduler": {"lease_ttl_s": LEASE_TTL_S}}))
        url = postgres.url()
        servers = [ServerProcess(tmp_path / f"server-{number}", config, url) for number in range(SERVERS)]
        store = open_postgres_store(postgres_address(url))
        try:
            yield World(sandbox, postgres, servers, store, tmp_path)
        finally:
            for server in servers:
                server.stop(code=None)
            store.close()


def kill_leader(world: World) -> None:
    leader = until(world.leader)
    leader.process.kill()
    leader.process.wait(60)
    until(lambda: (other := world.leader()) is not None and other is not leader)
    leader.start()


def freeze_leader(world: World) -> None:
    leader = until(world.leader)
    frozen = until(world.scheduler_pid)
    os.kill(frozen, signal.SIGSTOP)
    try:
        until(lambda: (other := world.leader()) is not None and other is not leader)
    finally:
        os.kill(frozen, signal.SIGCONT)


def restart_database(world: World) -> None:
    world.postgres.stop()
    world.postgres.start()


def kill_database(world: World) -> None:
    world.postgres.kill()
    world.postgres.start()


def test_none_is_lost_and_none_runs_twice(world: World) -> None:
    runs = world.folder / "runs"
    runs.mkdir()
    told = {
        "servers": [server.address for server in world.servers],
        "runs": str(runs),
        "jobs": JOBS // SUBMITTERS,
        "pause_s": PAUSE_S,
    }
    submitters = []
    for number in range(SUBMITTERS):
        environ = {**os.environ, "SUBMITTER": json.dumps({**told, "name": f"s{number}"})}
        submitters.append(
            subprocess.Popen(
                [sys.executable, PROGRAMS / "careful_submitter.py"],
                env=environ,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    faults: list[Callable[[World], None]] = [
        kill_leader,
        restart_database,
        freeze_leader,
        kill_database,
        kill_leader,
        restart_database,
    ]
    for number, fault in enumerate(faults, start=1):
        enough = number * JOBS // (len(faults) + 2)
        until(lambda enough=enough: world.ended() >= enough, within_s=PATIENCE_S)
        fault(world)
    answers = [submitter.communicate(timeout=PATIENCE_S)[0] for submitter in submitters]
    accepted = [job for answer in answers for job in json.loads(answer)["accepted"]]
    refused = Counter(kind for answer in answers for kind in json.loads(answer)["refused"])
    assert len(accepted) == len(set(accepted)) == JOBS
    until(lambda: world.ended() == JOBS, within_s=PATIENCE_S)

    jobs = world.store.jobs.get_many(accepted)
    states = Counter(job.state for job in jobs.values())
    assert states == {JobState.SUCCEEDED: JOBS}, [
        (job.submission_id, job.reason) for job in jobs.values() if job.state is not JobState.SUCCEEDED
    ]
    ran = {path.name: len(path.read_text().splitlines()) for path in runs.iterdir()}
    assert ran == dict.fromkeys(accepted, 1)
    print(f"refused and tried again: {dict(refused)}; attempts: {Counter(j.attempt for j in jobs.values())}")
