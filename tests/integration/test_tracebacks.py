"""A user's mistake ends in the user's own line; the whole traceback is there if it is wanted."""

import asyncio
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.programs import run_program
from tests.support.raymc import write_config
from tests.support.system import FAST, fake

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler import Job, Jobs, aio
from ray_multicluster_scheduler.client.tracebacks import TRACEBACK_VARIABLE, ends_at_the_caller
from ray_multicluster_scheduler.errors import InvalidRequest, JobNotFound, SchedulerError

# Python 3.10 keeps one frame of ours: see `client/tracebacks.py`.
OURS_AT_MOST = 0 if sys.version_info >= (3, 11) else 1

MISTAKES: dict[str, Callable[[], Any]] = {
    "an empty command": lambda: raymc.submit_job(""),
    "no mapping": lambda: raymc.submit_jobs(["echo 1"]),  # type: ignore[list-item]
    "no such argument": lambda: raymc.submit_job("echo", priorty=1),  # type: ignore[call-arg]
    "a missing argument": raymc.submit_job,
    "nobody's id": lambda: raymc.get_job_info("nobody"),
    "nobody's log": lambda: raymc.tail_job_logs("nobody"),
    "a property": lambda: Job("nobody").state,
    "a method": lambda: Job("nobody").info(),
    "a wait": lambda: Job("nobody").wait(),
    "a generator": lambda: list(Jobs([Job("nobody")]).as_completed(timeout=-1)),
    "an unknown state": lambda: raymc.jobs(state="done"),
    "one id": lambda: raymc.wait_for_all_jobs("sub_1"),
    "no function": lambda: raymc.submit_task("f"),  # type: ignore[arg-type]
}


async def _each(items: Any) -> None:
    async for _ in items:
        pass


AWAITED: dict[str, Callable[[], Awaitable[Any]]] = {
    "an empty command": lambda: aio.submit_job(""),
    "no mapping": lambda: aio.submit_jobs(["echo 1"]),  # type: ignore[list-item]
    "nobody's id": lambda: aio.get_job_info("nobody"),
    "nobody's log": lambda: _each(aio.tail_job_logs("nobody")),
    "a property": lambda: aio.Job("nobody").state,
    "a method": lambda: aio.Job("nobody").explain(),
    "a wait": lambda: aio.Job("nobody"),
    "a generator": lambda: _each(aio.Jobs([aio.Job("nobody")]).as_completed(timeout=-1)),
}


@pytest.fixture(autouse=True)
async def _cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(TRACEBACK_VARIABLE, raising=False)
    async with fake("a", 4) as cluster:
        monkeypatch.setenv("RAY_MULTICLUSTER_CONFIG", str(write_config(tmp_path, [cluster.spec()], **FAST)))
        yield
        await asyncio.to_thread(raymc.get_unified_scheduler().stop)


def frames_of_ours(error: BaseException) -> list[str]:
    """The frames of this package in a traceback, and whatever comes behind them."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    package = str(Path(raymc.__file__).parent)
    return next((files[place:] for place, name in enumerate(files) if name.startswith(package)), [])


def caught(mistake: Callable[[], Any]) -> BaseException:
    with pytest.raises((SchedulerError, TypeError)) as told:
        mistake()
    return told.value


@pytest.mark.parametrize("what", MISTAKES)
async def test_a_mistake_ends_in_the_line_of_the_user(what: str) -> None:
    error = await asyncio.to_thread(caught, MISTAKES[what])
    assert len(frames_of_ours(error)) <= OURS_AT_MOST
    assert traceback.extract_tb(error.__traceback__)[-1 - len(frames_of_ours(error))].filename == __file__


@pytest.mark.parametrize("what", AWAITED)
async def test_so_it_does_where_it_is_awaited(what: str) -> None:
    with pytest.raises((SchedulerError, TypeError)) as told:
        await AWAITED[what]()
    assert len(frames_of_ours(told.value)) <= OURS_AT_MOST


async def test_what_the_user_hands_over_is_the_users_own_line_too() -> None:
    def of_the_user() -> Any:
        yield {"entrypoint": "echo", "depends_on": [raymc.job("nobody")]}

    error = await asyncio.to_thread(caught, lambda: raymc.submit_jobs(of_the_user()))
    told = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert told[-1 - OURS_AT_MOST] == "of_the_user"


async def test_it_is_whole_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK_VARIABLE, "full")
    error = await asyncio.to_thread(caught, MISTAKES["nobody's id"])
    assert len(frames_of_ours(error)) > 3


PROGRAM = """\
import threading
import ray_multicluster_scheduler as raymc

def mine():
    raymc.submit_job("")

thread = threading.Thread(target=mine)
thread.start()
thread.join()
mine()
"""


async def test_what_a_program_prints_when_it_ends_so() -> None:
    ended = await run_program(PROGRAM, os.environ)
    assert ended.code == 1
    assert ended.err.count("in mine\n") == 2
    assert ended.err.count("ray_multicluster_scheduler/") == 2 * OURS_AT_MOST
    assert "InvalidEntrypoint: the entrypoint is empty; write a command" in ended.err


def test_reasons_stay_without_our_frames_and_those_of_the_user_stay_whole() -> None:
    @ends_at_the_caller
    def ours() -> None:
        try:
            int("x")
        except ValueError as error:
            raise InvalidRequest("not a number") from error

    def of_the_user() -> None:
        try:
            {}["key"]
        except KeyError:
            ours()

    with pytest.raises(InvalidRequest, match="not a number") as told:
        of_the_user()
    assert isinstance(told.value.__cause__, ValueError)
    context = told.value.__cause__.__context__
    assert isinstance(context, KeyError)
    assert traceback.extract_tb(context.__traceback__)[-1].name == "of_the_user"
    again = pickle.loads(pickle.dumps(told.value))
    assert (type(again), str(again)) == (InvalidRequest, "not a number")


def test_other_errors_are_left_alone() -> None:
    @ends_at_the_caller
    def ours() -> None:
        raise TypeError("a fault of ours")

    with pytest.raises(TypeError) as told:
        ours()
    assert traceback.extract_tb(told.value.__traceback__)[-1].name == "ours"
    assert ours.__name__ == "ours"


async def test_in_a_thread_of_a_pool() -> None:
    told: list[BaseException] = []

    def work() -> None:
        try:
            raymc.job("nobody")
        except JobNotFound as error:
            told.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert traceback.extract_tb(told[0].__traceback__)[0].name == "work"
    assert len(frames_of_ours(told[0])) <= OURS_AT_MOST
