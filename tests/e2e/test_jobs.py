"""Many jobs, several processes, real clusters."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import specific_servers
from tests.support.system import waited
from tests.support.waiting import until

from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.local import Sandbox
from ray_multicluster_scheduler.model.states import LIVE
from ray_multicluster_scheduler.service.request import JobRequest

pytestmark = pytest.mark.ray

CPUS = {"centos": 4, "mac": 2}


@pytest.fixture
def environ(tmp_path: Path, sandbox: Sandbox) -> dict[str, str]:
    """The environment of a process that uses the two clusters with a store of its own."""
    return {
        **os.environ,
        "RAY_MULTICLUSTER_HOME": str(tmp_path / "home"),
        "RAY_MULTICLUSTER_CONFIG": str(sandbox.config_path),
    }


@pytest.fixture
def scheduler(environ: dict[str, str]) -> Iterator[EmbeddedScheduler]:
    opened = EmbeddedScheduler.open(environ=environ)
    opened.start()
    yield opened
    opened.stop()


def test_forty_jobs_on_six_cpus_never_claim_more_than_there_is(
    sandbox: Sandbox, scheduler: EmbeddedScheduler
) -> None:
    requests = [JobRequest(entrypoint="sleep 1", user="ann") for _ in range(40)]
    ids = [job.submission_id for job in scheduler.service.submit(requests)]
    most: Counter[str] = Counter()
    addresses = [head.gcs_address for head in sandbox.heads.values()]
    before = set(specific_servers(*addresses))  # of programs of other tests, which have just ended

    def watch(jobs: Any) -> None:
        scheduler.ensure_scheduled()
        live = Counter(job.cluster for job in jobs.values() if job.state in LIVE)
        for name, count in live.items():
            most[name] = max(most[name], count)
        assert not set(specific_servers(*addresses)) - before

    waited(scheduler.service, ids, timeout_s=280, watch=watch)
    used = Counter(scheduler.store.history.attempts(each)[-1].cluster for each in ids)
    print(f"ran on {dict(used)}, at most {dict(most)} at once")
    assert set(used) == set(CPUS)
    assert all(most[name] <= cpus for name, cpus in CPUS.items())
    assert {len(scheduler.store.history.attempts(each)) for each in ids} == {1}


WORKER = """
import json, os, sys
from ray_multicluster_scheduler import initialize_scheduler_environment, submit_job, wait_for_all_jobs

initialize_scheduler_environment()
ids = [submit_job("sleep 2", submission_id=f"{sys.argv[1]}-{n}") for n in range(6)]
print(json.dumps(ids), flush=True)
wait_for_all_jobs(ids)
print("done", flush=True)
"""


def test_when_a_program_and_the_scheduler_are_killed_the_other_program_finishes_everything(
    environ: dict[str, str], tmp_path: Path
) -> None:
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, name], env=environ, stdout=subprocess.PIPE, text=True)
        for name in ("first", "second")
    ]
    ids = []
    for worker in workers:
        assert worker.stdout is not None
        ids += json.loads(worker.stdout.readline())
    scheduler = EmbeddedScheduler.open(environ=environ)
    try:
        leader = _leader_pid(scheduler)
        victim, survivor = workers
        assert leader not in {victim.pid, survivor.pid}
        victim.send_signal(signal.SIGKILL)
        os.kill(leader, signal.SIGKILL)
        victim.communicate()
        out, _ = survivor.communicate(timeout=200)
        assert out == "done\n"
        assert survivor.returncode == 0
        # What the dead one had submitted belongs to the store, not to its process.
        waited(scheduler.service, ids, timeout_s=100)
        assert {len(scheduler.store.history.attempts(each)) for each in ids} == {1}
    finally:
        scheduler.stop()


def _leader_pid(scheduler: EmbeddedScheduler) -> int:
    lease = until(lambda: scheduler.store.leases.current(now=time.time()))
    return int(lease.holder.split(":")[1])
