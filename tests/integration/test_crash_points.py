"""The scheduler is killed with -9 at every step of a job: after a restart nothing is lost or run twice.

The scheduler is a real process on a real database; the fake clusters live here and go on while it is dead.
Each job writes its own starts and ends to a file outside. `CRASH_REPEAT=20` repeats every test.
"""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest
from tests.support.crash_scene import Scene
from tests.support.oracle import runs_of
from tests.support.system import FAST
from tests.support.waiting import eventually

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import FakeRay

repeated = pytest.mark.parametrize("number", range(int(os.environ.get("CRASH_REPEAT", "1"))))


@asynccontextmanager
async def a_scene(directory: Path, **settings: float) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        fakes = [await stack.enter_async_context(FakeRay(name=name, cpus=4)) for name in ("a", "b")]
        clusters = {f.name: {"head_address": f.url[7:], "dashboard": f.url} for f in fakes}
        yield Scene(directory, clusters, {**FAST, **settings}, fakes)


@repeated
async def test_s0_a_job_that_was_not_committed_does_not_exist_and_can_be_submitted_again(
    tmp_path: Path, number: int
) -> None:
    async with a_scene(tmp_path) as scene:
        assert await scene.crash("submit:before-commit:1", scene.job("one")) == []
        assert scene.jobs() == {}
        assert "accepted one" in await scene.recover(scene.job("one"))
        assert scene.all_succeeded_once("one")
        assert not scene.problems("one")


@repeated
@pytest.mark.parametrize("key", [None, "my key"])
async def test_s1_a_committed_job_runs_once_although_its_submitter_got_no_answer(
    tmp_path: Path, key: str | None, number: int
) -> None:
    async with a_scene(tmp_path) as scene:
        job = scene.job("one", idempotency_key=key)
        assert await scene.crash("submit:after-commit:1", job) == []
        assert (await scene.recover(job))[0] == ("duplicate one" if key is None else "accepted one")
        assert scene.all_succeeded_once("one")
        assert not scene.problems("one")


@repeated
async def test_s2_a_package_that_was_half_packed_is_not_there_and_leaves_nothing(
    tmp_path: Path, number: int
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.sh").write_text("exit 0")
    async with a_scene(tmp_path) as scene:
        job = scene.job("one", runtime_env={"working_dir": str(code)})
        assert await scene.crash("pack:before-keep:1", job) == []
        packages = tmp_path / "state" / "packages"
        assert not list(packages.glob("_ray_pkg_*"))
        await scene.recover(job)
        # That of the job, and this package itself, which goes along.
        assert len([path for path in packages.iterdir() if path.suffix == ".zip"]) == 2
        assert not [path for path in packages.iterdir() if path.name.startswith((".tmp", "tmp"))]
        assert scene.all_succeeded_once("one")


#: The points between the acceptance of a job and its end, and their numbers in the table of docs/failures.md.
POINTS = [
    "place:decided",  # S3
    "place:written",  # S4
    "send:before-upload",  # S4
    "send:before-post",  # S4
    "send:after-post",  # S5
    "seen:RUNNING",  # S6
    "seen:SUCCEEDED",  # S7
]


@repeated
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("hit", [1, 2])
async def test_s3_to_s7_a_crash_on_the_way_loses_nothing_and_repeats_nothing(
    tmp_path: Path, point: str, hit: int, number: int
) -> None:
    ids = [f"job-{each}" for each in range(6)]  # more than are started at once
    async with a_scene(tmp_path) as scene:
        said = await scene.crash(f"{point}:{hit}", *(scene.job(each) for each in ids))
        missing = [scene.job(each) for each in ids if f"accepted {each}" not in said]
        await scene.recover(*missing)
        assert scene.all_succeeded_once(*ids)
        assert not scene.problems(*ids)


@repeated
async def test_s5_a_head_that_restarts_while_the_scheduler_is_down_costs_one_more_attempt(
    tmp_path: Path, number: int
) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.crash("send:after-post:1", scene.job("one", seconds=1000, preferred_cluster="a"))
        await eventually(lambda: scene.fakes["a"].runs)
        scene.journal.write_text("")  # the program that is killed with the head says nothing more
        await scene.fakes["a"].restart()
        successor = scene.start()
        await eventually(lambda: len(runs_of(scene.fakes.values(), "one")) == 2)
        with closing(scene.open()) as store:
            assert "restarted (new session)" in "\n".join(
                event.reason for event in store.history.events("one")
            )
            store.jobs.request_stop(["one"], now=0.0, reason="enough")
        assert (await successor.wait())[0] == 0
        assert not scene.problems("one")


@repeated
async def test_s7_a_result_that_was_deleted_while_the_scheduler_was_down_is_not_run_again(
    tmp_path: Path, number: int
) -> None:
    async with a_scene(tmp_path) as scene:
        await scene.crash("seen:SUCCEEDED:1", scene.job("one", preferred_cluster="a"))
        scene.fakes["a"].cluster.delete("one")
        await scene.recover()
        job = scene.jobs()["one"]
        assert (job.state, "may have done its work" in job.reason) == (JobState.FAILED, True)
        assert scene.starts("one") == 1
        assert not scene.problems("one")


@repeated
async def test_s8_an_attempt_that_was_replaced_is_stopped_by_the_next_scheduler(
    tmp_path: Path, number: int
) -> None:
    async with a_scene(tmp_path, probe_timeout_s=5.0, request_timeout_s=5.0) as scene:
        a, b = scene.fakes.values()
        does = f"if [ $RAY_MULTICLUSTER_ATTEMPT = 1 ]; then sleep 1000; fi; {scene.waits}"
        job = scene.job("one", does=does, preferred_cluster="a", on_unreachable=1.5)
        first = asyncio.create_task(scene.crash("sweep:before-stop:1", job))
        await eventually(lambda: a.runs)
        a.hang()
        await eventually(lambda: b.runs)
        a.resume()
        await first
        recovering = asyncio.create_task(scene.recover())
        await eventually(lambda: a.jobs["one"].status == "STOPPED")
        scene.go_on()
        await recovering
        with closing(scene.open()) as store:
            assert [attempt.outcome for attempt in store.history.attempts("one")] == [
                "SUPERSEDED",
                "SUCCEEDED",
            ]
        assert not scene.problems("one", may_overlap=("one",))


@repeated
async def test_s9_a_stop_that_was_asked_for_and_not_forwarded_is_forwarded(
    tmp_path: Path, number: int
) -> None:
    async with a_scene(tmp_path) as scene:
        first = asyncio.create_task(scene.crash("stop:before-post:1", scene.job("one", seconds=1000)))
        await eventually(lambda: runs_of(scene.fakes.values(), "one"))
        with closing(scene.open()) as store:
            store.jobs.request_stop(["one"], now=0.0, reason="enough")
        await first
        assert not scene.jobs()["one"].final
        await scene.recover()
        assert scene.jobs()["one"].state is JobState.STOPPED
        assert not scene.problems("one")


@repeated
async def test_s13_a_leader_that_was_paused_for_longer_than_its_lease_writes_and_starts_nothing_more(
    tmp_path: Path, number: int
) -> None:
    ids = [f"job-{each}" for each in range(6)]
    # Longer than a busy machine keeps a scheduler from its work: the successor must not lose it again.
    async with a_scene(tmp_path, lease_ttl_s=10.0) as scene:
        paused = scene.start(*(scene.job(each, does=scene.waits) for each in ids))
        await eventually(lambda: sum(len(fake.runs) for fake in scene.fakes.values()) >= 2)
        with closing(scene.open()) as store:
            before = store.leases.current(now=SystemClock().now())
            assert before is not None
            await scene.pause(paused)
            scene.go_on()
            successor = scene.start()
            await eventually(
                lambda: (
                    (lease := store.leases.current(now=SystemClock().now())) and lease.epoch > before.epoch
                )
            )
            os.kill(paused.pid, signal.SIGCONT)
            codes = [code for code, _ in await asyncio.gather(paused.wait(), successor.wait())]
            after = store.leases.current(now=SystemClock().now())
        assert codes == [0, 0]
        assert after is None or after.epoch > before.epoch
        assert scene.all_succeeded_once(*ids)
        assert not scene.problems(*ids)


@repeated
async def test_s14_sigterm_hands_the_jobs_over_untouched(tmp_path: Path, number: int) -> None:
    async with a_scene(tmp_path) as scene:
        leaving = scene.start(scene.job("one", seconds=2))
        await eventually(lambda: runs_of(scene.fakes.values(), "one"))
        leaving.process.terminate()
        assert (await leaving.wait())[0] == 0
        with closing(scene.open()) as store:
            assert store.leases.current(now=SystemClock().now()) is None  # given up, not waited for
        assert scene.jobs()["one"].state is not JobState.STOPPED
        await scene.recover()
        assert scene.all_succeeded_once("one")
        assert not scene.problems("one")


@repeated
@pytest.mark.slow
async def test_s15_kill_9_again_and_again_while_jobs_come_in(tmp_path: Path, number: int) -> None:
    chance = random.Random(number)  # a failure is repeated with its number
    ids: list[str] = []
    async with a_scene(tmp_path) as scene:
        for round_ in range(6):
            wanted = [f"job-{round_}-{each}" for each in range(4)]
            running = scene.start(*(scene.job(each, seconds=1) for each in wanted))
            await running.until_it_works()
            await asyncio.sleep(chance.uniform(0, 2))  # not to wait for anything: to die at any time
            running.process.kill()
            await running.wait()
            ids += wanted
        await scene.recover()
        assert scene.all_succeeded_once(*ids)
        assert not scene.problems(*ids)


async def test_the_invariants_catch_a_scheduler_that_sends_before_it_writes(tmp_path: Path) -> None:
    async with a_scene(tmp_path) as scene:
        job = scene.job("one", does=scene.waits, preferred_cluster="a")
        await scene.crash("send:after-post:1", job, sends_before_it_writes=True)
        await eventually(lambda: scene.fakes["a"].runs)
        with closing(scene.open()) as store:
            store.clusters.set_drained("a", drained=True, reason="the next placement goes elsewhere", now=0.0)
        recovering = asyncio.create_task(scene.recover())
        await eventually(lambda: scene.fakes["b"].runs)
        scene.go_on()
        await recovering
        assert any(problem.startswith("I2") for problem in scene.problems("one"))
