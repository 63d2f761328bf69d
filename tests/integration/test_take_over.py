"""A scheduler that is killed is followed at once, however long its lease would have lasted."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.support.system import System, fake

from ray_multicluster_scheduler.model.states import JobState

#: The longest that the configuration allows: a test that waits for its end fails by its own time limit.
LONG_S = 600.0

LEADER = """
import sys, time
from pathlib import Path
from ray_multicluster_scheduler.store import open_store
lease = open_store(Path(sys.argv[1])).leases.acquire("host:4711:leader", ttl_s=600.0, now=time.time())
print(lease.holder, flush=True)
sys.stdin.readline()
"""


async def test_a_scheduler_that_waits_leads_as_soon_as_the_leader_is_killed(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), lease_ttl_s=LONG_S) as system:
        # The size of the cluster is known then: the leader below never looks, and a submit would wait for it.
        await system.finished(await system.submit("echo"))
        await asyncio.to_thread(system.scheduler.stop)
        leader = await asyncio.create_subprocess_exec(
            sys.executable, "-c", LEADER, str(tmp_path / "state"), stdin=PIPE, stdout=PIPE
        )
        assert leader.stdout is not None
        held_by = (await leader.stdout.readline()).decode().strip()
        system.scheduler = system.another_scheduler()
        system.scheduler.start()
        job_id = await system.submit("echo")
        lease = system.scheduler.service.leader()
        assert lease is not None
        assert lease.holder == held_by

        leader.kill()
        await leader.communicate()

        await system.finished(job_id)
        assert system.scheduler.store.jobs.get(job_id).state is JobState.SUCCEEDED
        await asyncio.to_thread(system.scheduler.stop)
