"""clusters.yaml is read again without a restart: jobs go on, and new clusters get work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.support.raymc import write_config
from tests.support.serving import live
from tests.support.system import FAST, System, fake
from tests.support.trees import make_tree

from ray_multicluster_scheduler.config import load_config
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.errors import ConfigInvalid
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.app import create_app


class Reloading(System):
    """A system whose scheduler has read a real clusters.yaml."""

    def write(self, *names: str, **settings: Any) -> Path:
        return write_config(self.directory, [self.ray[name].spec() for name in names], **{**FAST, **settings})

    def another_scheduler(self, *, clusters: Any = None) -> EmbeddedScheduler:
        path = self.write("a")
        return EmbeddedScheduler(
            load_config(path), directory=self.directory / "state", environ=self._environ()
        )

    async def reload(self) -> Any:
        return await asyncio.to_thread(self.scheduler.reload)


@asynccontextmanager
async def reloading(tmp_path: Path) -> AsyncIterator[Reloading]:
    async with Reloading(tmp_path, fake("a", cpus=1), fake("b", cpus=1)) as system:
        assert isinstance(system, Reloading)
        yield system


async def test_an_added_cluster_gets_jobs_while_those_that_run_go_on(tmp_path: Path) -> None:
    async with reloading(tmp_path) as system:
        running = await system.submit("sleep 600", resource_requirements={"CPU": 1})
        await system.until(running, JobState.RUNNING)
        waiting = await system.submit("sleep 0.1", resource_requirements={"CPU": 1})

        system.write("a", "b")
        change = await system.reload()

        assert (change.added, change.changed, change.removed) == (("b",), (), ())
        assert (await system.until(waiting, JobState.SUCCEEDED)).cluster == "b"
        assert system.runs(running) == ["a"]
        assert system.scheduler.store.jobs.get(running).state is JobState.RUNNING
        assert [each.name for each in system.scheduler.service.clusters()] == ["a", "b"]
        system.scheduler.service.stop([running])
        await system.until(running, JobState.STOPPED)


async def test_jobs_of_a_removed_cluster_are_told_unreachable_and_come_back_with_it(tmp_path: Path) -> None:
    async with reloading(tmp_path) as system:
        running = await system.submit("sleep 600")
        await system.until(running, JobState.RUNNING)

        system.write("b")
        change = await system.reload()

        assert (change.added, change.removed) == (("b",), ("a",))
        await system.until(running, JobState.UNREACHABLE)
        assert "clusters.yaml" in system.scheduler.store.jobs.get(running).reason
        system.write("a", "b")
        await system.reload()
        await system.until(running, JobState.RUNNING)
        assert system.runs(running) == ["a"]
        system.scheduler.service.stop([running])
        await system.until(running, JobState.STOPPED)


async def test_packages_are_shared_as_soon_as_the_file_says_so(tmp_path: Path) -> None:
    async with reloading(tmp_path) as system:
        system.write("a", packages="database")
        change = await system.reload()
        assert change.settings == ("packages",)
        root = make_tree(tmp_path / "code", {"main.py": ""})
        job = await system.submit("sleep 0.1", runtime_env={"working_dir": str(root)})
        await system.until(job, JobState.SUCCEEDED)
        # That of the job, and this package itself, which goes along.
        assert len(system.scheduler.store.packages.last_used()) == 2


async def test_a_tail_goes_on_over_a_change_of_its_cluster(tmp_path: Path) -> None:
    async with reloading(tmp_path) as system:
        job = await system.submit("sleep 2")
        await system.until(job, JobState.RUNNING)
        tail = asyncio.create_task(_all_of(system, job))
        system.write("a", request_timeout_s=3)
        change = await system.reload()
        assert change.settings == ("request_timeout_s",)
        await system.until(job, JobState.SUCCEEDED)
        assert await tail == system.scheduler.service.log(job)


async def _all_of(system: System, job: str) -> str:
    return "".join([piece async for piece in system.scheduler.service.tail_async(job)])


async def test_a_wrong_file_keeps_the_old_one_and_says_why(tmp_path: Path) -> None:
    async with reloading(tmp_path) as system:
        path = system.write("a", "b")
        path.write_text(path.read_text().replace("head_address", "haed_address"))
        with pytest.raises(ConfigInvalid, match="haed_address"):
            await system.reload()
        assert [spec.name for spec in system.scheduler.config.clusters] == ["a"]
        await system.finished(await system.submit("echo"))
        system.write("a", "b")
        await system.reload()
        told = [
            each.outcome for each in system.scheduler.service.admin.audit().entries if each.action == "reload"
        ]
        assert told == ["ok", "refused: ConfigInvalid"]


async def test_whoever_administers_may_reload_over_rest(tmp_path: Path) -> None:
    async with reloading(tmp_path) as system:
        with live(create_app(system.scheduler)) as address:
            async with aiohttp.ClientSession(address) as http:
                path = system.write("a", "b")
                async with http.post("/api/v1/config/reload") as answer:
                    assert await answer.json() == {
                        "added": ["b"],
                        "changed": [],
                        "removed": [],
                        "settings": [],
                    }
                path.write_text("clusters: [")
                async with http.post("/api/v1/config/reload") as answer:
                    assert answer.status == 409
                    assert (await answer.json())["error"]["type"] == "ConfigInvalid"
                async with http.get("/api/v1/clusters") as answer:
                    assert [each["name"] for each in (await answer.json())["clusters"]] == ["a", "b"]


async def test_many_changes_in_a_row_lose_nothing(tmp_path: Path) -> None:
    async with reloading(tmp_path) as system:
        jobs = []
        for turn in range(6):
            jobs += await system.submit_many([{"entrypoint": "sleep 0.05"} for _ in range(5)])
            system.write(*("a", "b") if turn % 2 else ("b", "a"), max_starts_in_flight=turn + 1)
            await system.reload()
        done = await system.finished(*jobs)
        assert {job.state for job in done.values()} == {JobState.SUCCEEDED}
        assert all(len(system.runs(job)) == 1 for job in jobs)
