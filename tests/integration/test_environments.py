"""Environments that cannot work: said once, in the words of pip or conda, and not tried in vain."""

import asyncio
from pathlib import Path

import pytest
from tests.support.raymc import environment, raymc, write_config
from tests.support.system import System, fake, waited

from ray_multicluster_scheduler.client.waiting import how_it_failed
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv, JobsFailed
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.testing import FakeRay
from ray_multicluster_scheduler.testing.fake_cluster import RunRequest, ScriptedRun, ScriptedRunner

TRACEBACK = "Failed to set up runtime environment.\nTraceback (most recent call last):\n" + "".join(
    f'  File "/opt/ray/part_{number}.py", line {number}, in create\n    await task\n' for number in range(100)
)
PIP_WORDS = "No matching distribution found for nope==9.9"
NO_PACKAGE = (
    f"{TRACEBACK}ray.utils.SubprocessCalledProcessError: Run cmd[9] failed.\nLast 50 lines of stdout:\n"
    "    ERROR: Could not find a version that satisfies nope==9.9 (from versions: none)\n"
    f"    ERROR: {PIP_WORDS}\n"
)
NO_NETWORK = NO_PACKAGE.replace(
    "    ERROR: Could", "    WARNING: connection broken by 'timed out'\n    ERROR: Could"
)
NO_CONDA_NAME = (
    f"{TRACEBACK}ValueError: The given conda environment 'ts' from the runtime env {{runtime_env}} doesn't "
    "exist from the output of `conda info --json`. {runtime_env}"
)
PIP = {"pip": ["nope==9.9"]}


def clusters_tried(system: System, submission_id: str) -> list[str]:
    return [attempt.cluster for attempt in system.scheduler.store.history.attempts(submission_id)]


async def test_a_missing_package_is_told_in_pips_words_and_tried_once_on_each_cluster(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), fake("b")) as system:
        for ray in system.ray.values():
            ray.fail_starts(words=NO_PACKAGE)
        job_id = await system.submit("echo hi", runtime_env=PIP)
        job = await system.until(job_id, JobState.FAILED)
        assert PIP_WORDS in job.reason
        assert "not tried again, because no other cluster can take this environment" in job.reason
        assert sorted(clusters_tried(system, job_id)) == ["a", "b"]
        info = await asyncio.to_thread(system.scheduler.service.detail, job_id)
        assert all(PIP_WORDS in attempt.reason for attempt in info.attempts)
        with pytest.raises(JobsFailed, match=PIP_WORDS):
            await asyncio.to_thread(waited, system.scheduler.service, [job_id])


async def test_with_one_cluster_it_is_tried_once(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        system.ray["a"].fail_starts(words=NO_CONDA_NAME)
        job_id = await system.submit("echo hi", runtime_env={"conda": "ts"})
        job = await system.until(job_id, JobState.FAILED)
        assert "The given conda environment 'ts' doesn't exist" in job.reason
        assert clusters_tried(system, job_id) == ["a"]


async def test_a_network_that_fails_is_tried_again_as_often_as_other_trouble(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), max_infra_retries=2) as system:
        system.ray["a"].fail_starts(words=NO_NETWORK)
        job_id = await system.submit("echo hi", runtime_env=PIP)
        await system.until(job_id, JobState.FAILED)
        assert clusters_tried(system, job_id) == ["a"] * 3


async def test_what_a_cluster_could_not_set_up_is_refused_at_submit_while_others_still_get_it(
    tmp_path: Path,
) -> None:
    async with System(tmp_path, fake("a"), fake("b")) as system:
        system.ray["a"].fail_starts(words=NO_PACKAGE)
        first = await system.submit("echo hi", runtime_env=PIP, preferred_cluster="a")
        await system.until(first, JobState.SUCCEEDED)
        assert clusters_tried(system, first) == ["a", "b"]
        second = await system.submit("echo hi", runtime_env=PIP, preferred_cluster="a")
        await system.until(second, JobState.SUCCEEDED)
        assert clusters_tried(system, second) == ["b"]
        decision = system.scheduler.service.explain(second).decision
        assert decision is not None
        assert PIP_WORDS in decision.refusals["a"].sentence

        other = await system.submit("echo hi", runtime_env={"pip": ["nope==9.8"]}, preferred_cluster="a")
        system.ray["b"].fail_starts(words=NO_PACKAGE)
        await system.until(other, JobState.FAILED)
        with pytest.raises(InvalidRuntimeEnv, match=f"cluster 'b': .*{PIP_WORDS}"):
            await system.submit("echo hi", runtime_env={"pip": ["nope==9.8"]})


async def test_a_new_leader_knows_what_the_one_before_has_tried(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        system.ray["a"].fail_starts(words=NO_PACKAGE)
        await system.until(await system.submit("echo hi", runtime_env=PIP), JobState.FAILED)
        await asyncio.to_thread(system.scheduler.stop)
        system.scheduler = system.another_scheduler()
        system.scheduler.start()
        try:
            with pytest.raises(InvalidRuntimeEnv, match=PIP_WORDS):
                await system.submit("echo hi", runtime_env=PIP)
        finally:
            await asyncio.to_thread(system.scheduler.stop)


async def test_a_restarted_cluster_is_asked_again(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        ray = system.ray["a"]
        ray.fail_starts(words=NO_PACKAGE)
        await system.until(await system.submit("echo hi", runtime_env=PIP), JobState.FAILED)
        ray.fail_starts(None)
        await ray.restart()
        store = system.scheduler.store
        while store.clusters.load_snapshots()["a"].session_name != ray.session_name:
            await asyncio.to_thread(store.changes.wait, 0, timeout_s=0.1)
        await system.until(await system.submit("echo hi", runtime_env=PIP), JobState.SUCCEEDED)


async def test_jobs_behind_one_whose_environment_failed_everywhere_end_without_a_try(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=1)) as system:
        system.ray["a"].fail_starts(words=NO_PACKAGE)
        ids = await system.submit_many([{"entrypoint": "echo hi", "runtime_env": PIP}] * 20)
        jobs = await system.finished(*ids)
        assert {job.state for job in jobs.values()} == {JobState.FAILED}
        assert all(PIP_WORDS in job.reason for job in jobs.values())
        assert sum(len(clusters_tried(system, each)) for each in ids) < len(ids)


@pytest.mark.parametrize(
    "runtime_env", [{"pip": ["ray[data]==2.52.1"]}, {"conda": {"dependencies": ["ray-default=2.9"]}}]
)
async def test_another_ray_is_refused_at_submit(tmp_path: Path, runtime_env: object) -> None:
    words = "it runs Ray 2.60.0 and the environment asks for ray"
    async with System(tmp_path, fake("a"), fake("b")) as system:
        with pytest.raises(InvalidRuntimeEnv, match=words):
            await system.submit("echo hi", runtime_env=runtime_env)
        assert system.scheduler.store.history.last_event() == 0


async def test_a_job_whose_ray_turns_out_to_be_nowhere_ends(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a"), probe_timeout_s=0.3, request_timeout_s=0.3) as system:
        await system.ray["a"].go_dark()
        job_id = await system.submit("echo hi", runtime_env={"pip": ["ray==2.52.1"]})
        await system.ray["a"].come_back()
        job = await system.until(job_id, JobState.FAILED)
        assert "no cluster can take its environment: 'a': it runs Ray 2.60.0" in job.reason


async def test_uv_goes_only_where_ray_knows_it(tmp_path: Path) -> None:
    async with System(tmp_path, fake("old", ray_version="2.9.3"), fake("new", cpus=1)) as system:
        await system.until(await system.submit("echo warm", preferred_cluster="new"), JobState.SUCCEEDED)
        ids = await system.submit_many([{"entrypoint": "echo hi", "runtime_env": {"uv": ["six"]}}] * 3)
        await system.finished(*ids)
        assert {each: clusters_tried(system, each) for each in ids} == {each: ["new"] for each in ids}


async def test_while_packages_are_installed_the_reason_says_so(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        job_id = await system.submit("echo hi", runtime_env={"pip": ["a", "b"]})
        await system.finished(job_id)
        assert (
            "cluster 'a' accepted it and is setting up its environment (pip: 2 packages)"
            in system.reasons(job_id)
        )


class HeldRunner(ScriptedRunner):
    """Starts programs once it is told to, as Ray does when it has set up their environment."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def start(self, request: RunRequest) -> ScriptedRun:
        await self.go.wait()
        return await super().start(request)


async def test_while_packages_are_installed_explain_says_so(tmp_path: Path) -> None:
    runner = HeldRunner()
    async with System(tmp_path, fake("a", runner=runner)) as system:
        job_id = await system.submit("echo hi", runtime_env={"pip": ["a", "b"]})
        await system.until(job_id, JobState.SUBMITTED)
        told = system.scheduler.service.explain(job_id).why
        assert "is setting up its environment (pip: 2 packages)" in told
        runner.go.set()
        await system.finished(job_id)


async def test_secrets_of_the_cluster_and_of_the_job_appear_nowhere(tmp_path: Path) -> None:
    of_cluster = {"runtime_env": {"env_vars": {"CLUSTER_API_KEY": "cluster-s3cret"}}}
    async with System(tmp_path, fake("a"), clusters={"a": of_cluster}) as system:
        system.ray["a"].fail_starts(words=f"{TRACEBACK}OSError: cannot set up {{runtime_env}}")
        job_id = await system.submit(
            "echo hi",
            runtime_env={"env_vars": {"MY_PASSWORD": "job-s3cret"}, "pip": ["x"]},
            metadata={"note": "with job-s3cret"},
        )
        await system.until(job_id, JobState.FAILED)
        scheduler = system.scheduler
        shown = [
            scheduler.store.jobs.get(job_id).reason,
            scheduler.store.history.events(job_id),
            [attempt.reason for attempt in scheduler.store.history.attempts(job_id)],
            scheduler.service.detail(job_id),
            scheduler.service.explain(job_id),
            how_it_failed(scheduler.service, *scheduler.service.find_each([job_id])),
            scheduler.store.clusters.load_snapshots(),
        ]
        assert "cannot set up" in str(shown)
        assert "s3cret" not in str(shown)


async def test_no_command_shows_a_secret_of_the_clusters_environment(tmp_path: Path) -> None:
    secret = {"runtime_env": {"env_vars": {"CLUSTER_API_KEY": "cluster-s3cret"}}}
    async with FakeRay(name="a") as ray:
        ray.fail_starts(words=f"{TRACEBACK}ValueError: no such conda environment in {{runtime_env}}")
        config = write_config(tmp_path, [ray.spec(**secret)], max_infra_retries=0)
        where = ["--config", config]
        env = environment(HOME=str(tmp_path))
        submitted = await raymc("submit", *where, "--submission-id", "job-1", "--", "true", environ=env)
        shown = [submitted]
        for command in ("status", "info", "events", "explain", "jobs"):
            words = [command] if command == "jobs" else [command, "job-1"]
            shown += [await raymc(*words, *more, *where, environ=env) for more in ([], ["--json"])]
    texts = [f"{done.out}{done.err}" for done in shown]
    assert all("s3cret" not in text for text in texts)
    assert sum("<redacted>" in text for text in texts) > len(texts) / 2
