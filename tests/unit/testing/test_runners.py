"""The two ways in which a fake cluster runs an entrypoint."""

import pytest

from ray_multicluster_scheduler.testing.fake_cluster import KILLED, TERMINATED, RunRequest, ScriptedRunner


async def play(entrypoint: str) -> tuple[int, str]:
    run = await ScriptedRunner().start(RunRequest(submission_id="j", entrypoint=entrypoint))
    return await run.wait(), run.log()


@pytest.mark.parametrize(
    ("entrypoint", "code", "log"),
    [
        ("echo hello world", 0, "hello world\n"),
        ("echo a; exit 3; echo b", 3, "a\n"),
        ("sleep 0 && echo 'two  words'", 0, "two  words\n"),
        ("python x.py && echo never", 127, "/bin/sh: 1: python: not found\n"),
        ("nonsense; echo goes on", 0, "/bin/sh: 1: nonsense: not found\ngoes on\n"),
        ("", 0, ""),
    ],
)
async def test_a_script_is_played_as_a_shell_would(entrypoint: str, code: int, log: str) -> None:
    assert await play(entrypoint) == (code, log)


async def test_a_sleeping_script_ends_at_once_when_told() -> None:
    runner = ScriptedRunner()
    stopped = await runner.start(RunRequest(submission_id="a", entrypoint="sleep 3600"))
    killed = await runner.start(RunRequest(submission_id="b", entrypoint="sleep 3600"))
    stopped.terminate()
    killed.kill()
    assert (await stopped.wait(), await killed.wait()) == (TERMINATED, KILLED)


async def test_a_script_sleeps_on_the_clock_that_it_is_given() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    run = await ScriptedRunner(sleep=sleep).start(
        RunRequest(submission_id="j", entrypoint="sleep 1e6; sleep 2")
    )
    assert (await run.wait(), slept) == (0, [1e6, 2.0])
