"""What a function with `graceful_shutdown_on_keyboard_interrupt` stops: jobs of threads, of coroutines."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.programs import run_program
from tests.support.raymc import write_config
from tests.support.serving import DOORS, opened
from tests.support.system import FAST, fake
from tests.support.waiting import eventually

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler import aio
from ray_multicluster_scheduler.client import scope


@pytest.fixture(params=DOORS)
async def variables(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, str]]:
    """One fake cluster in the configuration of this process and of those with these variables."""
    home = {"RAY_MULTICLUSTER_HOME": str(tmp_path / "home")}
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", home["RAY_MULTICLUSTER_HOME"])
    async with (
        fake("a", 200) as ray,
        opened(request.param, write_config(tmp_path, [ray.spec()], **FAST)) as door,
    ):
        for name, value in door.items():
            monkeypatch.setenv(name, value)
        yield {**home, **door}
        await asyncio.to_thread(raymc.get_unified_scheduler().stop)


async def states(*ids: str) -> dict[str, str]:
    return {each: await aio.get_job_status(each) for each in ids}


def stopped(*ids: str) -> dict[str, str]:
    return dict.fromkeys(ids, "STOPPED")


#: What the programs below have in common.
BEGIN = """
import asyncio, logging, sys, threading
from concurrent.futures import ThreadPoolExecutor
from ray_multicluster_scheduler import aio, graceful_shutdown_on_keyboard_interrupt
from ray_multicluster_scheduler import submit_job, wait_for_all_jobs

logger = logging.getLogger("ray_multicluster_scheduler.client.waiting")
logger.addHandler(logging.StreamHandler(sys.stdout))
logger.setLevel(logging.INFO)

def submit(name):
    return submit_job("sleep 1000", submission_id=name)
"""


async def test_jobs_that_a_pool_of_threads_submitted_are_stopped(variables: dict[str, str]) -> None:
    program = """
@graceful_shutdown_on_keyboard_interrupt
def workflow():
    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(submit, ["one", "two", "three", "four"]))
    wait_for_all_jobs(ids)

workflow()
"""
    ended = await run_program(BEGIN + program, variables, interrupt_at="jobs: ")
    assert "KeyboardInterrupt" in ended.err
    assert "go on" not in ended.out + ended.err
    assert await states("one", "two", "three", "four") == stopped("one", "two", "three", "four")


async def test_only_the_jobs_that_nothing_stops_are_said_to_go_on(variables: dict[str, str]) -> None:
    program = """
before = submit("before")

@graceful_shutdown_on_keyboard_interrupt
def workflow():
    with ThreadPoolExecutor(1) as pool:
        inside = pool.submit(submit, "inside").result()
    wait_for_all_jobs([before, inside])

workflow()
"""
    ended = await run_program(BEGIN + program, variables, interrupt_at="jobs: ")
    assert "1 job(s) go on; `raymc stop before`" in ended.out  # where the handler writes
    assert await states("inside") == stopped("inside")
    assert await aio.get_job_status("before") in {"PENDING", "RUNNING"}
    await aio.stop_job("before")


async def test_a_decorated_function_in_a_thread_works_for_the_one_in_the_main_thread(
    variables: dict[str, str],
) -> None:
    program = """
@graceful_shutdown_on_keyboard_interrupt
def part(name):
    wait_for_all_jobs([submit(name)])

@graceful_shutdown_on_keyboard_interrupt
def workflow():
    threads = [threading.Thread(target=part, args=(name,), daemon=True) for name in ("left", "right")]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

workflow()
"""
    await run_program(BEGIN + program, variables, interrupt_at="jobs: ")
    assert await states("left", "right") == stopped("left", "right")


async def test_ctrl_c_in_asyncio_stops_what_the_coroutine_and_its_threads_submitted_and_no_more(
    variables: dict[str, str],
) -> None:
    program = """
@graceful_shutdown_on_keyboard_interrupt
async def workflow():
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        ids = [await loop.run_in_executor(pool, submit, "pool")]
    ids.append(await asyncio.to_thread(submit, "thread"))
    ids.append(await aio.submit_job("sleep 1000", submission_id="aio"))
    await aio.wait_for_all_jobs(ids)

async def main():
    decorated = asyncio.create_task(workflow())
    await asyncio.sleep(0)
    await aio.submit_job("sleep 1000", submission_id="other")
    await decorated

asyncio.run(main())
"""
    ended = await run_program(BEGIN + program, variables, interrupt_at="jobs: ")
    assert "KeyboardInterrupt" in ended.err
    assert await states("pool", "thread", "aio") == stopped("pool", "thread", "aio")
    assert await aio.get_job_status("other") in {"PENDING", "RUNNING"}
    await aio.stop_job("other")


@raymc.graceful_shutdown_on_keyboard_interrupt
async def waits_for(name: str) -> None:
    await aio.wait_for_all_jobs([await aio.submit_job("sleep 1000", submission_id=name)])


async def submitted(*names: str) -> None:
    await eventually(lambda: not any(raymc.get_job_status(name) == "UNKNOWN" for name in names))


async def test_a_cancelled_coroutine_stops_its_own_jobs_and_leaves_the_others_alone(
    variables: dict[str, str],
) -> None:
    mine, other = asyncio.create_task(waits_for("mine")), asyncio.create_task(waits_for("other"))
    plain = asyncio.create_task(asyncio.to_thread(raymc.submit_job, "sleep 1000", submission_id="plain"))
    await submitted("mine", "other", "plain")
    mine.cancel()
    await asyncio.wait([mine])
    assert mine.cancelled()
    assert await states("mine") == stopped("mine")
    assert "STOPPED" not in (await states("other", "plain")).values()
    other.cancel()
    await asyncio.wait([other, plain])
    assert await states("other") == stopped("other")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    await aio.stop_job("plain")


async def test_a_time_out_around_a_coroutine_is_a_time_out_and_its_jobs_are_stopped(
    variables: dict[str, str],
) -> None:
    workflow = asyncio.create_task(waits_for("late"))
    await submitted("late")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(workflow, 0.01)
    assert await states("late") == stopped("late")


async def test_while_a_cancelled_coroutine_stops_its_jobs_the_others_go_on(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping, go = threading.Event(), threading.Event()

    def slowly(ids: object) -> None:
        stopping.set()
        go.wait(60)

    monkeypatch.setattr(scope, "stop_and_wait", slowly)
    workflow = asyncio.create_task(waits_for("slow"))
    await submitted("slow")
    workflow.cancel()
    await eventually(stopping.is_set)  # this very loop would stand still
    assert await aio.get_job_status("slow") in {"PENDING", "RUNNING"}
    go.set()
    await asyncio.wait([workflow])
    assert workflow.cancelled()
    await aio.stop_job("slow")


async def test_a_submission_that_was_on_its_way_at_the_cancellation_is_stopped(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = (await asyncio.to_thread(raymc.initialize_scheduler_environment)).service
    real, sent, go = type(service).submit, threading.Event(), threading.Event()

    def held(self: object, requests: object) -> object:
        sent.set()
        go.wait(60)
        return real(self, requests)  # type: ignore[arg-type]

    monkeypatch.setattr(type(service), "submit", held)
    workflow = asyncio.create_task(waits_for("underway"))
    await asyncio.to_thread(sent.wait, 60)
    workflow.cancel()
    await asyncio.wait([workflow])
    go.set()
    await submitted("underway")
    await eventually(lambda: raymc.get_job_status("underway") == "STOPPED")


def test_a_signal_is_handled_as_before_when_the_last_function_has_ended() -> None:
    def mine(*_: object) -> None: ...

    async def both() -> None:
        async def nap(seconds: float) -> None:
            await asyncio.sleep(seconds)

        decorated = raymc.graceful_shutdown_on_keyboard_interrupt(nap)
        await asyncio.gather(decorated(0.05), decorated(0.1))

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, mine)
    try:
        asyncio.run(both())
        assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGINT) is before[signal.SIGINT]
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before[signal.SIGTERM])
