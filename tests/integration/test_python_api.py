"""The plain functions, as programs use them: one process, fake clusters, a file with their addresses."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.integration.programs import run_program
from tests.support.raymc import write_config
from tests.support.serving import DOORS, OVER_HTTP, opened
from tests.support.system import FAST, fake
from tests.support.waiting import PATIENCE_S, eventually

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler import aio
from ray_multicluster_scheduler.app import client_api
from ray_multicluster_scheduler.app.client_api import submit_job as older_jobs
from ray_multicluster_scheduler.client import scope
from ray_multicluster_scheduler.client.remote import RemoteScheduler
from ray_multicluster_scheduler.environment.options import SUBMISSION_ID_VAR
from ray_multicluster_scheduler.errors import ConfigNotFound, InvalidRequest, JobNotFound, NoQueueHere
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import FakeRay

#: What is about the process that schedules, and so is not the same for a program that asks a server.
ONLY_IN_PROCESS = {
    "test_inside_a_job_nothing_is_opened_or_started": "the server, which is no job, has opened its store",
    "test_inside_a_job_without_a_server_no_second_queue_is_opened": "here is a server",
    "test_a_forked_process_begins_anew_and_leaves_its_parent_alone": "the next test is for both",
    "test_the_jobs_of_a_cluster_that_is_no_longer_configured_can_still_be_read": "a server has its own file",
}


@pytest.fixture(params=DOORS)
async def clusters(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[dict[str, FakeRay]]:
    """Two fake clusters in the configuration of this process, or of a server that it asks."""
    if request.param == OVER_HTTP and request.node.originalname in ONLY_IN_PROCESS:
        pytest.skip(ONLY_IN_PROCESS[request.node.originalname])
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    async with fake("a", 4) as a, fake("b", 2) as b:
        config = write_config(tmp_path, [a.spec(), b.spec()], **FAST)
        async with opened(request.param, config) as variables:
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            yield {"a": a, "b": b}
            await asyncio.to_thread(raymc.get_unified_scheduler().stop)


async def test_the_first_call_initialises_from_the_default_places(clusters: dict[str, FakeRay]) -> None:
    job_id = await aio.submit_job("echo hi")
    assert job_id.startswith("sub_")
    assert await aio.wait_for_all_jobs([job_id]) is True
    assert await aio.get_job_status(job_id) == "SUCCEEDED"
    assert await aio.get_job_status(job_id, "b") == "SUCCEEDED"
    assert await aio.get_job_status("nobody") == "UNKNOWN"


async def test_without_a_configuration_every_place_that_was_looked_at_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "nothing"))
    monkeypatch.delenv("RAY_MULTICLUSTER_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match="raymc local up") as caught:
        raymc.submit_job("echo hi")
    assert isinstance(caught.value, ConfigNotFound)
    assert str(tmp_path / "clusters.yaml") in str(caught.value)


async def test_the_same_file_gives_the_same_handle_and_a_stopped_one_is_replaced(
    clusters: dict[str, FakeRay],
) -> None:
    first = await asyncio.to_thread(raymc.initialize_scheduler_environment)
    assert await asyncio.to_thread(raymc.initialize_scheduler_environment) is first
    await asyncio.to_thread(first.stop)
    assert await asyncio.to_thread(raymc.get_unified_scheduler) is not first


async def test_after_a_stop_the_same_configuration_is_used_again_and_never_another_file(
    clusters: dict[str, FakeRay], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    write_config(mine, [clusters["b"].spec()], **FAST)
    monkeypatch.chdir(mine)
    handle = await asyncio.to_thread(raymc.initialize_scheduler_environment, "clusters.yaml")
    job_id = await aio.submit_job("echo hi")
    monkeypatch.chdir("/")
    await asyncio.to_thread(handle.stop)
    assert await aio.get_job_status(job_id) != "UNKNOWN"
    assert raymc.get_unified_scheduler().where == handle.where
    again = await asyncio.to_thread(raymc.initialize_scheduler_environment)
    assert again.where == handle.where
    await asyncio.to_thread(again.stop)
    assert (await asyncio.to_thread(raymc.initialize_scheduler_environment)).where == handle.where


async def test_a_server_is_asked_again_after_a_stop_and_tasks_have_the_same_file(
    clusters: dict[str, FakeRay], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "named"
    named.mkdir()
    path = write_config(named, [clusters["a"].spec()], address="http://127.0.0.1:9")
    monkeypatch.delenv("RAY_MULTICLUSTER_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_MULTICLUSTER_CONFIG", str(path))
    handle = await asyncio.to_thread(raymc.get_unified_scheduler)
    monkeypatch.delenv("RAY_MULTICLUSTER_CONFIG")
    handle.stop()
    again = await asyncio.to_thread(raymc.get_unified_scheduler)
    assert isinstance(again, RemoteScheduler)
    assert again.where == "http://127.0.0.1:9"
    assert again._config_file_path == path


async def test_inside_a_job_nothing_is_opened_or_started(
    clusters: dict[str, FakeRay], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SUBMISSION_ID_VAR, "job-1")
    before = {name: sum(ray.calls.values()) for name, ray in clusters.items()}
    raymc.initialize_scheduler_environment().stop()
    assert not (tmp_path / "home").exists()
    assert {name: sum(ray.calls.values()) for name, ray in clusters.items()} == before


async def test_inside_a_job_without_a_server_no_second_queue_is_opened(
    clusters: dict[str, FakeRay], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SUBMISSION_ID_VAR, "job-1")
    with pytest.raises(NoQueueHere, match=r"inside job 'job-1'.*raymc serve"):
        raymc.submit_job("echo hi")
    with pytest.raises(NoQueueHere):
        raymc.list_jobs()
    assert client_api.get_unified_scheduler().list_clusters() == ["a", "b"]
    assert not (tmp_path / "home").exists()
    assert not any(ray.jobs for ray in clusters.values())


async def test_a_job_with_an_older_package_on_its_path_is_told_which_one_is_used(
    clusters: dict[str, FakeRay],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    older = tmp_path / "pycharm" / "ray_multicluster_scheduler"
    (older / "ray_multicluster_scheduler").mkdir(parents=True)
    (older / "ray_multicluster_scheduler" / "__init__.py").touch()
    monkeypatch.setenv(SUBMISSION_ID_VAR, "job-1")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{older}")
    client_api.initialize_scheduler_environment()
    assert f"and not the one in {older}: remove that line from PYTHONPATH" in caplog.text


async def test_the_clusters_are_listed_with_what_is_known_of_them(clusters: dict[str, FakeRay]) -> None:
    await aio.wait_for_all_jobs([await aio.submit_job("echo hi")])
    scheduler = raymc.get_unified_scheduler()
    listed = {each["name"]: each for each in scheduler.cluster_details()}
    assert scheduler.list_clusters() == ["a", "b"]
    assert set(listed) == {"a", "b"}
    assert any(each["total"] and each["total"]["CPU"] == 4 for each in listed.values())


async def test_the_scheduler_of_older_programs_has_their_methods_and_lists_names(
    clusters: dict[str, FakeRay],
) -> None:
    manager = await asyncio.to_thread(client_api.initialize_scheduler_environment)
    scheduler = client_api.get_unified_scheduler()
    assert isinstance(scheduler, client_api.UnifiedScheduler)
    assert client_api.UnifiedScheduler().initialize_environment() is manager
    assert scheduler.list_clusters() == manager.list_clusters() == ["a", "b"]
    assert scheduler.task_lifecycle_manager is manager
    client_api.initialize_scheduler(manager)
    job_id = await asyncio.to_thread(scheduler.submit_job, "echo hi", job_id="nightly")
    assert await asyncio.to_thread(older_jobs.update_submitted_job_id, "nightly", job_id) is True
    assert await asyncio.to_thread(older_jobs.update_submitted_job_id, "nobody", job_id) is False
    assert await aio.wait_for_all_jobs([job_id]) is True
    await asyncio.to_thread(scheduler.cleanup)
    assert manager.stopped


async def test_jobs_submitted_together_are_all_or_none(clusters: dict[str, FakeRay]) -> None:
    with pytest.raises(ValueError, match=r"relative path, .*or write the whole path$"):
        await aio.submit_jobs([{"entrypoint": "echo 1"}, {"entrypoint": "python x.py"}])
    assert await aio.list_jobs() == []
    ids = await aio.submit_jobs([{"entrypoint": "echo 1", "group": "g"}, {"entrypoint": "echo 2"}])
    await aio.wait_for_all_jobs(ids)
    assert [row["submission_id"] for row in await aio.list_jobs(group="g")] == ids[:1]


async def test_a_script_that_lies_here_is_refused_with_the_working_dir_that_would_send_it(
    clusters: dict[str, FakeRay], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("print(1)")
    with pytest.raises(ValueError, match=r"lies in this directory, which runtime_env=\{'working_dir': '.'\}"):
        await aio.submit_job("python x.py")
    assert await aio.list_jobs() == []


async def test_mistakes_in_python_are_told_in_a_sentence(clusters: dict[str, FakeRay]) -> None:
    with pytest.raises(ValueError, match=r"each job must be a mapping .*not 'echo 1'"):
        await aio.submit_jobs(["echo 1"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="not a function; submit_task runs one"):
        await aio.submit_job(print)  # type: ignore[arg-type]
    ids = await aio.submit_jobs([{"entrypoint": "echo 1"}, {"entrypoint": "echo 2"}])
    assert await aio.wait_for_all_jobs(each for each in ids)


async def test_the_keys_of_a_job_begin_with_what_everybody_looks_for(clusters: dict[str, FakeRay]) -> None:
    job_id = await aio.submit_job("echo 1")
    first = ["submission_id", "job_id", "state", "status", "cluster", "message", "user", "entrypoint"]
    first += ["accepted_at", "started_at", "ended_at", "exit_code"]
    assert list(await aio.get_job_info(job_id))[: len(first)] == first
    assert list((await aio.list_jobs())[0])[: len(first)] == first


async def test_a_job_that_has_ended_is_deleted_and_its_id_is_free_again(clusters: dict[str, FakeRay]) -> None:
    job_id = await aio.submit_job("sleep 600", submission_id="one", job_id="nightly")
    with pytest.raises(ValueError, match="can be deleted when it has ended; stop it first"):
        await aio.delete_job(job_id)
    assert await aio.stop_job(job_id) is True
    await aio.delete_job("nightly")
    assert await aio.get_job_status(job_id) == "UNKNOWN"
    assert not any("one" in ray.cluster.jobs for ray in clusters.values())
    with pytest.raises(LookupError):
        await aio.delete_job(job_id)
    assert await aio.submit_job("echo", submission_id="one") == "one"


async def test_an_argument_that_does_not_exist_is_named(clusters: dict[str, FakeRay]) -> None:
    with pytest.raises(InvalidRequest, match="prioritty"):
        await aio.submit_jobs([{"entrypoint": "echo", "prioritty": 3}])


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: aio.list_jobs(group=["g"]), "group"),  # type: ignore[arg-type]
        (lambda: aio.list_jobs(job_id="\ud800"), "job_id"),
        (lambda: aio.list_jobs(limit=10**400), "limit"),
        (lambda: aio.list_jobs(states=5), "states"),  # type: ignore[arg-type]
        (lambda: aio.wait_for_all_jobs([], timeout=10**400), "timeout"),
        (lambda: aio.wait_for_all_jobs([], check_interval="5"), "check_interval"),  # type: ignore[arg-type]
        (lambda: aio.wait_for_all_jobs([5]), "submission_ids"),  # type: ignore[list-item]
        (lambda: aio.get_job_status(["a"]), "submission_id"),  # type: ignore[arg-type]
        (lambda: aio.get_job_info("a\0"), "submission_id"),
        (lambda: aio.stop_job(5), "submission_id"),  # type: ignore[arg-type]
    ],
)
async def test_an_argument_that_cannot_be_is_refused_by_its_name(
    clusters: dict[str, FakeRay], call: Callable[[], Awaitable[object]], named: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"^{named} "):
        await call()


async def test_a_single_id_instead_of_a_list_is_refused_with_the_way_out(
    clusters: dict[str, FakeRay],
) -> None:
    with pytest.raises(ValueError, match=r"\[id\]"):
        await aio.wait_for_all_jobs("sub_1")  # type: ignore[arg-type]


async def test_a_job_is_found_by_its_job_id_as_well_and_the_newest_is_meant(
    clusters: dict[str, FakeRay],
) -> None:
    old = await aio.submit_job("echo monday", job_id="nightly")
    await aio.wait_for_all_jobs([old])
    new = await aio.submit_job("echo tuesday", job_id="nightly")
    assert await aio.wait_for_all_jobs(["nightly"]) is True
    assert await aio.get_job_status("nightly", "a") == "SUCCEEDED"
    assert (await aio.get_job_info("nightly"))["submission_id"] == new
    assert (await aio.explain("nightly"))["submission_id"] == new
    assert "tuesday" in "".join([piece async for piece in aio.tail_job_logs("nightly")])
    assert [row["submission_id"] for row in await aio.list_jobs(job_id="nightly")] == [new, old]
    running = await aio.submit_job("sleep 60", job_id="nightly")
    assert await aio.stop_job("nightly") is True
    assert await aio.get_job_status(running) == "STOPPED"
    assert await aio.get_job_status(new) == "SUCCEEDED"


async def test_the_log_is_followed_from_the_start_to_the_end(clusters: dict[str, FakeRay]) -> None:
    job_id = await aio.submit_job("echo one; sleep 0.5; echo two")
    text = "".join([piece async for piece in aio.tail_job_logs(job_id)])
    assert text.endswith("\none\ntwo\n")
    assert text.count("\none\n") == 1
    assert await aio.get_job_status(job_id) == "SUCCEEDED"


async def test_a_broken_tail_is_taken_up_where_it_broke_off(clusters: dict[str, FakeRay]) -> None:
    job_id = await aio.submit_job("echo one; sleep 1; echo two", preferred_cluster="a")
    pieces = aio.tail_job_logs(job_id)
    text = ""
    while "\none\n" not in text:
        text += await anext(pieces)
    await clusters["a"].go_dark()
    await clusters["a"].come_back()
    async for piece in pieces:
        text += piece
    assert text.endswith("\none\ntwo\n")
    assert text.count("\none\n") == 1


async def test_the_log_of_an_unknown_job_is_refused_at_once(clusters: dict[str, FakeRay]) -> None:
    with pytest.raises(JobNotFound):
        await anext(aio.tail_job_logs("nobody"))


async def test_stopping_tells_whether_it_stopped_something(clusters: dict[str, FakeRay]) -> None:
    job_id = await aio.submit_job("sleep 1000")
    assert await aio.stop_job(job_id) is True
    assert await aio.stop_job(job_id) is False  # it had been stopped before
    assert await aio.stop_job("nobody") is False
    done = await aio.submit_job("echo")
    await aio.wait_for_all_jobs([done])
    assert await aio.stop_job(done) is False


async def test_info_of_a_running_job_has_its_log_so_far_and_no_secret(clusters: dict[str, FakeRay]) -> None:
    env = {"env_vars": {"API_TOKEN": "very-secret-1", "COLOUR": "blue"}}
    job_id = await aio.submit_job("echo started; sleep 1000", runtime_env=env)

    async def once_it_prints() -> dict[str, Any] | None:
        info = await aio.get_job_info(job_id)
        return info if "started" in (info["logs"] or "") else None

    info = await eventually(once_it_prints)
    assert info["runtime_env"]["env_vars"]["API_TOKEN"] == "<redacted>"
    assert info["runtime_env"]["env_vars"]["COLOUR"] == "blue"
    assert "very-secret-1" not in repr(info)
    await aio.stop_job(job_id)


async def test_no_secret_is_in_events_reasons_or_errors(clusters: dict[str, FakeRay]) -> None:
    env = {"env_vars": {"DB_PASSWORD": "very-secret-2"}}
    job_id = await aio.submit_job("exit 1", runtime_env=env)
    with pytest.raises(RuntimeError) as caught:
        await aio.wait_for_all_jobs([job_id])
    scheduler = raymc.get_unified_scheduler()
    told = [
        repr(await asyncio.to_thread(scheduler.service.events, job_id)),
        str(caught.value),
        repr(await aio.explain(job_id)),
    ]
    assert not any("very-secret-2" in text for text in told)


def interrupted(number: signal.Signals) -> list[str]:
    """Run a decorated function in this thread, interrupt it while it sleeps, return what it submitted."""
    ids: list[str] = []

    @raymc.graceful_shutdown_on_keyboard_interrupt()
    def workflow() -> None:
        ids.extend(raymc.submit_job("sleep 1000") for _ in range(8))
        threading.Timer(0.5, os.kill, (os.getpid(), number)).start()
        time.sleep(60)

    with pytest.raises(KeyboardInterrupt if number is signal.SIGINT else SystemExit):
        workflow()
    return ids


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_function_stops_what_it_submitted_queued_or_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, door: str
) -> None:
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    loop = asyncio.new_event_loop()
    runner = threading.Thread(target=loop.run_forever)
    runner.start()
    ray, stack = fake("a", 2), AsyncExitStack()
    asyncio.run_coroutine_threadsafe(stack.enter_async_context(ray), loop).result()
    config = write_config(tmp_path, [ray.spec()], **FAST)
    opening = stack.enter_async_context(opened(door, config))
    for name, value in asyncio.run_coroutine_threadsafe(opening, loop).result().items():
        monkeypatch.setenv(name, value)
    try:
        other = raymc.submit_job("sleep 1000")
        ids = interrupted(number)
        assert {raymc.get_job_status(each) for each in ids} == {"STOPPED"}
        assert raymc.get_job_status(other) != "STOPPED"
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        raymc.get_unified_scheduler().stop()
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        runner.join()
        loop.close()


def test_the_decorator_returns_what_the_function_returns_with_and_without_parentheses() -> None:
    assert raymc.graceful_shutdown_on_keyboard_interrupt(lambda: 5)() == 5
    assert raymc.graceful_shutdown_on_keyboard_interrupt()(lambda: 6)() == 6


def test_an_error_of_the_function_itself_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope, "stop_and_wait", lambda ids: pytest.fail("stopped"))

    @raymc.graceful_shutdown_on_keyboard_interrupt
    def broken() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        broken()


FORKING = """
import os, sys
import ray_multicluster_scheduler as raymc

scheduler = raymc.initialize_scheduler_environment(sys.argv[1])
raymc.wait_for_all_jobs([raymc.submit_job("echo parent")])
child = os.fork()
if child == 0:
    try:
        scheduler.store
    except RuntimeError as error:
        print(error, flush=True)
    raymc.wait_for_all_jobs([raymc.submit_job("echo child")])
    sys.exit(7)  # not os._exit: what is done at the end of an interpreter is done
_, status = os.waitpid(child, 0)
print("exit code", os.waitstatus_to_exitcode(status), flush=True)
raymc.wait_for_all_jobs([raymc.submit_job("echo parent again")])
"""


async def test_a_forked_process_begins_anew_and_leaves_its_parent_alone(
    clusters: dict[str, FakeRay], tmp_path: Path
) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FORKING, str(tmp_path / "clusters.yaml"), stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await asyncio.wait_for(program.communicate(), timeout=PATIENCE_S)
    finally:
        if program.returncode is None:
            program.kill()
    said = out.decode()
    assert program.returncode == 0
    assert "this scheduler belongs to the process that was forked; call initialize" in said
    assert "exit code 7" in said
    assert sum(len(ray.runs) for ray in clusters.values()) == 3


FORKING_CLIENT = """
import os, sys
import ray_multicluster_scheduler as raymc

scheduler = raymc.initialize_scheduler_environment()
raymc.wait_for_all_jobs([raymc.submit_job("echo parent")])
child = os.fork()
if child == 0:
    try:
        scheduler.service
    except RuntimeError as error:
        print(error, flush=True)
    raymc.wait_for_all_jobs([raymc.submit_job("echo child")])
    sys.exit(7)
_, status = os.waitpid(child, 0)
print("exit code", os.waitstatus_to_exitcode(status), flush=True)
raymc.wait_for_all_jobs([raymc.submit_job("echo parent again")])
"""


async def test_a_forked_client_of_a_server_has_connections_of_its_own(clusters: dict[str, FakeRay]) -> None:
    ended = await run_program(FORKING_CLIENT, dict(os.environ))
    assert ended.code == 0, ended.err
    assert "this scheduler belongs to the process that was forked; call initialize" in ended.out
    assert "exit code 7" in ended.out
    assert sum(len(ray.runs) for ray in clusters.values()) == 3


async def test_the_jobs_of_a_cluster_that_is_no_longer_configured_can_still_be_read(
    clusters: dict[str, FakeRay], tmp_path: Path
) -> None:
    ended = await aio.submit_job("echo from b", preferred_cluster="b")
    await aio.wait_for_all_jobs([ended])
    running = await aio.submit_job("sleep 600", preferred_cluster="b")
    store = raymc.get_unified_scheduler().store
    await eventually(lambda: store.jobs.get(running).state is JobState.RUNNING)
    config = write_config(tmp_path, [clusters["a"].spec()], **FAST)
    scheduler = await asyncio.to_thread(raymc.initialize_scheduler_environment, config)
    await eventually(lambda: scheduler.store.jobs.get(running).state is JobState.UNREACHABLE)
    assert "no longer in clusters.yaml" in (await aio.get_job_info(running))["message"]
    log = await asyncio.to_thread(lambda: "".join(raymc.tail_job_logs(ended)))
    assert log.endswith("\nfrom b\n")
