"""Jobs from submit to end, over fake clusters: placement, environments, order, dependencies, stops."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.system import System, fake, waited

from ray_multicluster_scheduler.errors import (
    DependencyProblem,
    DuplicateSubmission,
    InvalidEntrypoint,
    InvalidRequest,
    InvalidRuntimeEnv,
    JobNotFound,
    JobsFailed,
    NeverFits,
    WaitTimeout,
)
from ray_multicluster_scheduler.model.job import Target
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.request import JobRequest


def an_env(home: str, **more: Any) -> dict[str, Any]:
    return {"runtime_env": {"env_vars": {"home_dir": home, **more}}}


async def test_a_job_runs_and_its_story_is_told(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("echo hello; sleep 0.5")
        await system.until(job_id, JobState.SUCCEEDED)
        assert system.story(job_id) == ["QUEUED", "PLACED", "SUBMITTED", "RUNNING", "SUCCEEDED"]
        info = system.scheduler.service.detail(job_id)
        assert info.status == "SUCCEEDED"
        assert info.cluster == "a"
        assert "hello" in (info.logs or "")
        assert info.runtime_env["env_vars"]["RAY_MULTICLUSTER_CLUSTER"] == "a"


async def test_a_program_that_seeds_its_random_numbers_gets_them(tmp_path: Path) -> None:
    random.seed(7)
    seeded = random.getstate()
    async with System(tmp_path, fake("a"), fake("b")) as system:
        job_id = await system.submit("echo hello")
        await system.until(job_id, JobState.SUCCEEDED)
    assert random.getstate() == seeded


async def test_each_cluster_gets_its_own_environment_and_paths_in_any_order(tmp_path: Path) -> None:
    homes = {"centos": "/home/zorro/", "mac": "/Users/zorro/"}
    clusters = {name: an_env(home, PYTHONPATH=f"{home}lib") for name, home in homes.items()}
    # Few starts at once: a preferred cluster that has no room left would be passed over. On a busy machine
    # one that is slow to start jobs is too, so what counts is where a job went.
    system_of_two = System(tmp_path, fake("centos"), fake("mac"), clusters=clusters, max_starts_in_flight=2)
    async with system_of_two as system:
        names = ["centos", "mac"] * 10
        ids = await system.submit_many(
            [{"entrypoint": "echo /home/zorro//project/x.py", "preferred_cluster": name} for name in names]
        )
        done = await system.finished(*ids)
        assert {job.cluster for job in done.values()} == set(names)
        for job_id, job in done.items():
            name = job.cluster or ""
            sent = system.ray[name].jobs[job_id]
            assert sent.submission.runtime_env["env_vars"] == {
                "home_dir": homes[name],
                "PYTHONPATH": f"{homes[name]}lib",
                "RAY_MULTICLUSTER_CLUSTER": name,
                "RAY_MULTICLUSTER_CURRENT_CLUSTER": name,
                "RAY_MULTICLUSTER_SUBMISSION_ID": job_id,
                "RAY_MULTICLUSTER_ATTEMPT": "1",
                "RAY_MULTICLUSTER_PACKAGE": sent.submission.runtime_env["py_modules"][0],
                "RAY_MULTICLUSTER_RESULT": str(system.ray[name].cluster.logs_dir / f"raymc-result-{job_id}"),
            }
            assert sent.submission.entrypoint == f"echo {homes[name].rstrip('/')}//project/x.py"


async def test_never_more_is_claimed_than_there_is_and_all_clusters_work(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", 4), fake("b", 2), max_starts_in_flight=8) as system:
        ids = await system.submit_many([{"entrypoint": "sleep 0.3"}] * 40)
        done = await system.finished(*ids)
        assert {job.state for job in done.values()} == {JobState.SUCCEEDED}
        assert set(Counter(system.runs(each)[0] for each in ids)) == {"a", "b"}
        for name, cpus in (("a", 4), ("b", 2)):
            assert _most_at_once(system, name) <= cpus


def _most_at_once(system: System, name: str) -> int:
    changes = [(run.start, 1) for run in system.ray[name].runs]
    changes += [(run.end, -1) for run in system.ray[name].runs]
    level = most = 0
    for _, change in sorted(changes):
        level += change
        most = max(most, level)
    return most


async def test_higher_priority_goes_first(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", 1)) as system:
        first = await system.submit("sleep 0.3")
        await system.until(first, JobState.RUNNING)
        low, high = await system.submit_many(
            [{"entrypoint": "sleep 0.1", "priority": 0}, {"entrypoint": "sleep 0.1", "priority": 5}]
        )
        done = await system.finished(low, high)
        assert done[high].placed_at < done[low].placed_at


async def test_a_job_waits_for_its_dependency(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        first = await system.submit("sleep 0.3")
        second = await system.submit("echo", depends_on=[first])
        done = await system.finished(first, second)
        assert done[second].placed_at >= done[first].ended_at


async def test_a_failed_dependency_fails_the_chain_and_says_why(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        first = await system.submit("exit 7", submission_id="first")
        second = await system.submit("echo", submission_id="second", depends_on=[first])
        third = await system.submit("echo", depends_on=[second])
        done = await system.finished(first, second, third)
        assert {job.state for job in done.values()} == {JobState.FAILED}
        assert "'second'" in done[third].reason
        assert "'first'" in done[third].reason
        assert "exit code 7" in done[third].reason
        assert not system.runs(third)


async def test_an_unknown_dependency_is_refused(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        with pytest.raises(DependencyProblem, match="nobody"):
            await system.submit("echo", depends_on=["nobody"])


async def test_a_running_job_is_stopped(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("sleep 1000")
        await system.until(job_id, JobState.RUNNING)
        system.scheduler.service.stop([job_id])
        assert (await system.until(job_id, JobState.STOPPED)).target is Target.STOPPED


async def test_a_queued_job_is_stopped_without_ever_running(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", 1)) as system:
        running, waiting = await system.submit_many([{"entrypoint": "sleep 1000"}] * 2)
        await system.until(running, JobState.RUNNING)
        system.scheduler.service.stop([waiting])
        await system.until(waiting, JobState.STOPPED)
        assert not system.runs(waiting)
        assert system.scheduler.store.jobs.get(running).state is JobState.RUNNING
        system.scheduler.service.stop([running])


async def test_a_job_that_runs_too_long_is_stopped_and_failed(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("sleep 1000", timeout_s=0.2)
        job = await system.until(job_id, JobState.FAILED)
        assert "timeout_s" in job.reason


async def test_a_job_that_waits_too_long_fails_in_the_queue(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", 1)) as system:
        running = await system.submit("sleep 1000")
        await system.until(running, JobState.RUNNING)
        late = await system.submit("echo", queue_timeout_s=0.2)
        job = await system.until(late, JobState.FAILED)
        assert "queue_timeout_s" in job.reason or "waited" in job.reason
        system.scheduler.service.stop([running])


async def test_a_failing_program_is_tried_again_as_often_as_asked(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("exit 3", max_retries=2)
        job = await system.until(job_id, JobState.FAILED)
        assert (job.attempt, job.user_failures, job.exit_code) == (3, 3, 3)
        assert [attempt.remote_id for attempt in system.scheduler.store.history.attempts(job_id)] == [
            job_id,
            f"{job_id}--r2",
            f"{job_id}--r3",
        ]


async def test_two_jobs_with_identical_content_are_two_jobs(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        ids = await system.submit_many([{"entrypoint": "echo same"}] * 2)
        await system.finished(*ids)
        assert len(set(ids)) == len(system.ray["a"].runs) == 2


async def test_a_taken_id_is_refused_unless_the_key_matches(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        first = await system.submit("echo", submission_id="mine", idempotency_key="k")
        assert await system.submit("echo", submission_id="mine", idempotency_key="k") == first
        with pytest.raises(DuplicateSubmission, match="mine"):
            await system.submit("echo", submission_id="mine")


async def test_the_preferred_cluster_is_taken_and_otherwise_another(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", 8), fake("b", 1)) as system:
        first = await system.submit("sleep 1000", preferred_cluster="b")
        await system.until(first, JobState.RUNNING)
        second = await system.submit("echo", preferred_cluster="b")
        await system.finished(second)
        assert (system.runs(first), system.runs(second)) == (["b"], ["a"])
        system.scheduler.service.stop([first])


async def test_an_unknown_preferred_cluster_falls_back_and_the_open_job_says_so(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        service = system.scheduler.service
        job_id = await system.submit("sleep 0.5", preferred_cluster="non_existent")
        (sentence,) = service.find_each([job_id])[0].warnings
        assert "'non_existent' is not configured; there are a" in sentence
        await system.until(job_id, JobState.SUCCEEDED)
        assert service.detail(job_id).warnings == ()


async def test_what_no_cluster_could_ever_hold_is_refused_naming_the_largest(tmp_path: Path) -> None:
    async with System(tmp_path, fake("small", 2), fake("large", 8)) as system:
        with pytest.raises(NeverFits, match=r"1000 CPU.*'large' with 8 CPU"):
            await system.submit("echo", resource_requirements={"CPU": 1000})


CODE = {"runtime_env": {"working_dir": "https://code.example/project.zip"}}


async def test_a_relative_path_starts_in_the_working_dir_of_the_clusters(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b"), clusters={"a": CODE, "b": CODE}) as system:
        await system.submit("python script.py")
        await system.submit("python script.py", runtime_env={"env_vars": {"COLOUR": "blue"}})


async def test_the_refusal_of_a_relative_path_names_the_clusters_in_which_it_starts_nowhere(
    tmp_path: Path,
) -> None:
    async with System(tmp_path, fake("a"), fake("b"), fake("c"), clusters={"b": CODE}) as system:
        with pytest.raises(InvalidEntrypoint, match="'a', 'c' have no working_dir in which it could start"):
            await system.submit("python script.py")
        await system.submit("python script.py", **CODE)


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ({"entrypoint": "python script.py"}, InvalidEntrypoint, "relative path"),
        ({"entrypoint": "  "}, InvalidEntrypoint, "empty"),
        ({"entrypoint": "echo", "submission_id": "a/b"}, InvalidRequest, "submission_id"),
        ({"entrypoint": "echo", "resource_requirements": {"CPU": -1}}, InvalidRequest, "negative"),
        ({"entrypoint": "echo", "tags": "one"}, InvalidRequest, "list of words"),
        ({"entrypoint": "echo", "timeout_s": 0}, InvalidRequest, "timeout_s"),
        ({"entrypoint": "echo", "on_unreachable": "maybe"}, InvalidRequest, "on_unreachable"),
        ({"entrypoint": "echo", "metadata": {"raymc.origin": "x"}}, InvalidRequest, "raymc"),
        ({"entrypoint": "echo", "runtime_env": {"pipp": []}}, InvalidRuntimeEnv, "pip"),
    ],
    ids=lambda value: next(iter(value.items()))[1] if isinstance(value, dict) else "",
)
async def test_bad_requests_are_refused_before_anything_is_stored(
    tmp_path: Path, request_: dict[str, Any], error: type[Exception], words: str
) -> None:
    async with System(tmp_path, fake("a")) as system:
        with pytest.raises(error, match=words) as caught:
            await system.submit_many([{"entrypoint": "echo fine"}, request_])
        assert isinstance(caught.value, ValueError)
        assert system.scheduler.store.jobs.list() == ()


async def test_an_environment_that_fits_one_cluster_only_goes_there(tmp_path: Path) -> None:
    clusters = {"image": {"runtime_env": {"image_uri": "registry/image:1"}}, "plain": {}}
    async with System(tmp_path, fake("image", 8), fake("plain", 2), clusters=clusters) as system:
        job_id = await system.submit("echo", runtime_env={"pip": ["requests"]})
        await system.until(job_id, JobState.SUCCEEDED)
        assert system.runs(job_id) == ["plain"]


async def test_waiting_names_each_failed_job_with_its_last_lines(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        good = await system.submit("echo fine")
        bad = await system.submit("echo oh no; exit 2", metadata={"job_name": "training"})
        with pytest.raises(JobsFailed) as caught:
            await asyncio.to_thread(waited, system.scheduler.service, [good, bad])
        assert isinstance(caught.value, RuntimeError)
        assert caught.value.submission_ids == (bad,)
        assert all(word in str(caught.value) for word in (bad, "training", "oh no", "exit code 2"))
        assert good not in str(caught.value)


async def test_waiting_in_vain_says_what_is_open_and_leaves_it_running(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("sleep 1000")
        with pytest.raises(WaitTimeout, match=job_id) as caught:
            await asyncio.to_thread(waited, system.scheduler.service, [job_id], timeout_s=0.5)
        assert isinstance(caught.value, TimeoutError)
        await system.until(job_id, JobState.RUNNING)
        system.scheduler.service.stop([job_id])


async def test_an_unknown_id_cannot_be_waited_for(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        with pytest.raises(JobNotFound, match="nobody"):
            await asyncio.to_thread(waited, system.scheduler.service, ["nobody"])


async def test_a_drained_cluster_gets_nothing_new_and_an_undrained_one_does(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        system.scheduler.service.set_drained("a", drained=True, reason="new disks")
        job_id = await system.submit("echo")
        told = await asyncio.to_thread(system.scheduler.service.explain, job_id)
        assert told.decision is not None
        assert "new disks" in told.decision.refusals["a"].sentence
        assert system.scheduler.store.jobs.get(job_id).state is JobState.QUEUED
        system.scheduler.service.set_drained("a", drained=False, reason="")
        await system.until(job_id, JobState.SUCCEEDED)


async def test_a_second_scheduler_takes_over_when_the_first_one_ends(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", 1)) as system:
        ids = await system.submit_many([{"entrypoint": "sleep 0.3"}] * 6)
        await system.until(ids[0], JobState.RUNNING)
        second = system.another_scheduler()
        second.start()
        await asyncio.to_thread(system.scheduler.stop)
        system.scheduler = second
        done = await system.finished(*ids)
        await asyncio.to_thread(second.stop)
        assert {job.state for job in done.values()} == {JobState.SUCCEEDED}
        assert all(len(system.runs(each)) == 1 for each in ids)


async def test_a_dry_run_stores_nothing_and_shows_the_environment_of_each_cluster(tmp_path: Path) -> None:
    clusters = {"a": an_env("/home/ann", API_TOKEN="geheim"), "b": an_env("/Users/ann")}
    async with System(tmp_path, fake("a", 8), fake("b", 2), clusters=clusters) as system:
        await system.finished(await system.submit("echo"))
        request = JobRequest(entrypoint="python /home/ann/x.py", user="ann")
        told = await asyncio.to_thread(system.scheduler.service.plan, request)
        assert told.cluster == "a"
        assert told.environments["b"].entrypoint == "python /Users/ann/x.py"
        assert "geheim" not in repr(told)
        assert len(system.scheduler.store.jobs.list()) == 1
