"""Waiting for jobs: the first failure, time-outs, Ctrl-C, and asyncio without a thread for each wait."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.programs import run_program
from tests.support.raymc import write_config
from tests.support.serving import DOORS, opened
from tests.support.system import FAST, fake, waited

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler import aio
from ray_multicluster_scheduler.errors import JobsFailed, WaitTimeout

#: More than the default executor has threads.
MANY = 4 * ((os.cpu_count() or 1) + 4)


@pytest.fixture(params=DOORS)
async def variables(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, str]]:
    """One fake cluster in the configuration of this process and of those with these variables."""
    home = {"RAY_MULTICLUSTER_HOME": str(tmp_path / "home")}
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", home["RAY_MULTICLUSTER_HOME"])
    async with fake("a", 200) as ray:
        config = write_config(tmp_path, [ray.spec()], **FAST)
        async with opened(request.param, config) as variables:
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            yield {**home, **variables}
            await asyncio.to_thread(raymc.get_unified_scheduler().stop)


@pytest.mark.parametrize("wait", [aio.wait_for_all_jobs, raymc.wait_for_all_jobs])
async def test_waiting_raises_at_the_first_failure_and_the_others_go_on(
    variables: dict[str, str], wait: object
) -> None:
    slow = await aio.submit_job("sleep 1000")
    bad = await aio.submit_job("echo oh no; exit 3")
    call = wait([slow, bad]) if wait is aio.wait_for_all_jobs else asyncio.to_thread(wait, [slow, bad])  # type: ignore[arg-type,operator]
    with pytest.raises(JobsFailed, match="oh no") as caught:
        await call
    assert caught.value.submission_ids == (bad,)
    assert "1 other job(s) go on" in str(caught.value)
    assert await aio.get_job_status(slow) in {"PENDING", "RUNNING"}
    await aio.stop_job(slow)


async def test_waiting_for_all_ends_tells_of_each_failure(variables: dict[str, str]) -> None:
    first = await aio.submit_job("exit 3")
    await asyncio.to_thread(
        waited, raymc.get_unified_scheduler().service, [await aio.submit_job("sleep 0.2")]
    )
    second = await aio.submit_job("sleep 0.5; exit 4")
    with pytest.raises(JobsFailed) as caught:
        await aio.wait_for_all_jobs([first, second], fail_fast=False)
    assert set(caught.value.submission_ids) == {first, second}


@pytest.mark.parametrize("in_asyncio", [True, False])
async def test_a_time_out_names_what_failed_meanwhile(variables: dict[str, str], in_asyncio: bool) -> None:
    slow, bad = await aio.submit_job("sleep 1000"), await aio.submit_job("exit 3")
    with pytest.raises(RuntimeError):
        await aio.wait_for_all_jobs([bad])
    if in_asyncio:
        waiting = aio.wait_for_all_jobs([slow, bad], timeout=0.1, fail_fast=False)
    else:
        waiting = asyncio.to_thread(raymc.wait_for_all_jobs, [slow, bad], timeout=0.1, fail_fast=False)
    with pytest.raises(WaitTimeout) as caught:
        await waiting
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.submission_ids, caught.value.failed) == ((slow,), (bad,))
    assert f"{bad}: FAILED on 'a'" in str(caught.value)
    await aio.stop_job(slow)


async def test_many_waits_and_tails_in_asyncio_hold_no_thread(variables: dict[str, str]) -> None:
    job = await aio.submit_job("echo started; sleep 1000")
    before = threading.active_count()

    async def tail() -> list[str]:
        return [piece async for piece in aio.tail_job_logs(job)]

    waits = [asyncio.create_task(aio.wait_for_all_jobs([job])) for _ in range(MANY)]
    tails = [asyncio.create_task(tail()) for _ in range(MANY)]
    assert await aio.wait_for_all_jobs([await aio.submit_job("echo between")]) is True
    assert threading.active_count() - before < MANY
    assert await aio.stop_job(job) is True
    assert all(isinstance(each, JobsFailed) for each in await asyncio.gather(*waits, return_exceptions=True))
    assert all("started" in "".join(pieces) for pieces in await asyncio.gather(*tails))


async def test_a_program_in_asyncio_ends_when_it_gave_up_waiting(variables: dict[str, str]) -> None:
    ended = await run_program(
        """
        import asyncio
        from ray_multicluster_scheduler import aio

        async def tail(job):
            return [piece async for piece in aio.tail_job_logs(job)]

        async def main():
            job = await aio.submit_job("sleep 1000")
            for endless in (aio.wait_for_all_jobs([job]), tail(job)):
                try:
                    await asyncio.wait_for(endless, 1)
                except asyncio.TimeoutError:
                    print("gave up")

        asyncio.run(main())
        """,
        variables,
    )
    said = [line for line in ended.err.splitlines() if "a scheduler for this store runs" not in line]
    assert (ended.code, ended.out.split("\n")[:2], said) == (0, ["gave up", "gave up"], [])


#: It has begun to wait when it logs how far the jobs are.
PLAIN = """
import logging, sys
from ray_multicluster_scheduler import graceful_shutdown_on_keyboard_interrupt, submit_job, wait_for_all_jobs

def main():
    logger = logging.getLogger("ray_multicluster_scheduler.client.waiting")
    logger.addHandler(logging.StreamHandler(sys.stdout))
    logger.setLevel(logging.INFO)
    job = submit_job("sleep 1000", submission_id="{name}")
    wait_for_all_jobs([job])

{decorator}(main)()
"""


async def test_an_interrupted_wait_says_that_the_jobs_go_on_and_how_to_stop_them(
    variables: dict[str, str],
) -> None:
    program = PLAIN.format(name="forgotten", decorator="")
    ended = await run_program(program, variables, interrupt_at="jobs: 1 ")
    assert "1 job(s) go on" in ended.out  # where the program's handler writes
    assert "raymc stop forgotten" in ended.out
    assert await aio.get_job_status("forgotten") in {"PENDING", "RUNNING"}
    await aio.stop_job("forgotten")


async def test_where_the_decorator_stops_them_nothing_is_said_to_go_on(variables: dict[str, str]) -> None:
    program = PLAIN.format(name="held", decorator="graceful_shutdown_on_keyboard_interrupt")
    ended = await run_program(program, variables, interrupt_at="1 ")
    assert "go on" not in ended.out + ended.err
    assert await aio.get_job_status("held") == "STOPPED"


@pytest.mark.parametrize("more", ["", "scheduler.cluster_details()"])
async def test_a_program_that_only_initialises_ends_without_a_word(
    variables: dict[str, str], more: str
) -> None:
    program = f"""
    from ray_multicluster_scheduler import initialize_scheduler_environment
    scheduler = initialize_scheduler_environment()
    {more}
    """
    ended = await run_program(program, variables)
    assert (ended.code, ended.out, ended.err) == (0, "", "")
