"""A followed log ends with its job, however long Ray keeps the connection; each character comes once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.raymc import write_config
from tests.support.system import FAST

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler import aio
from ray_multicluster_scheduler.testing import FakeRay
from ray_multicluster_scheduler.testing.fake_cluster import ShellRunner

KEPT_BYTES = 400
LOGS = "GET /api/jobs/{id}/logs"


@pytest.fixture
async def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeRay]:
    """One fake cluster in the configuration of this process, which keeps the end of a log only."""
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    async with FakeRay(name="a", cpus=4, runner=ShellRunner()) as cluster:
        config = write_config(tmp_path, [cluster.spec()], **FAST, log_keep_bytes=KEPT_BYTES)
        monkeypatch.setenv("RAY_MULTICLUSTER_CONFIG", str(config))
        yield cluster
        await asyncio.to_thread(raymc.get_unified_scheduler().stop)


async def tail_until(pieces: AsyncIterator[str], words: str) -> str:
    """Read until these words were read."""
    text = ""
    while words not in text:
        text += await anext(pieces)
    return text


def log_of(ray: FakeRay, submission_id: str) -> str:
    """Return what the cluster itself has of a job's log."""
    [name] = [name for name in ray.jobs if name.startswith(submission_id)]
    return ray.cluster.logs(name)


def program(folder: Path, *lines: str) -> str:
    """Write a shell program in which WAIT waits for the file `go`; return the command that runs it."""
    wait = f"for _ in $(seq 6000); do [ -e {folder / 'go'} ] && break; sleep 0.02; done"
    (folder / "program.sh").write_text("\n".join(lines).replace("WAIT", wait))
    return f"sh {folder / 'program.sh'}"


async def test_a_tail_ends_with_its_job_and_takes_the_rest_from_the_kept_log(
    ray: FakeRay, tmp_path: Path
) -> None:
    job_id = await aio.submit_job(program(tmp_path, "echo one", "WAIT", "echo two"))
    pieces = aio.tail_job_logs(job_id)
    text = await tail_until(pieces, "\none\n")
    ray.hold_tails()
    (tmp_path / "go").touch()
    async for piece in pieces:
        text += piece
    assert text.endswith("\none\ntwo\n")
    assert text.count("\none\n") == 1
    assert ray.calls[LOGS] == 1  # to keep the log: what follows it needs the cluster no more


@pytest.mark.parametrize("seen", [0, 1500])
async def test_of_a_log_that_is_too_long_to_be_kept_every_character_comes_once(
    ray: FakeRay, tmp_path: Path, seen: int
) -> None:
    first = tmp_path / "first"
    first.write_text("".join(f"é{number:06}\n" for number in range(200)))
    job_id = await aio.submit_job(
        program(
            tmp_path,
            "echo begin",
            f"head -c {seen} {first}",
            "WAIT",
            f"tail -c +{seen + 1} {first}",
            "echo end",
        )
    )
    pieces = aio.tail_job_logs(job_id)
    text = await tail_until(pieces, "é000149\n" if seen else "begin\n")
    ray.hold_tails()
    (tmp_path / "go").touch()
    async for piece in pieces:
        text += piece
    assert text == log_of(ray, job_id)
    assert ray.calls[LOGS] == (1 if seen else 2)  # with a gap before the kept part, the cluster is asked


async def test_the_rest_of_an_attempt_that_failed_comes_before_the_next_one(
    ray: FakeRay, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    job_id = await aio.submit_job(
        program(
            tmp_path,
            "echo one",
            "WAIT",
            f"[ -e {again} ] && echo three && exit",
            f"touch {again}",
            "echo two",
            "exit 1",
        ),
        max_retries=1,
    )
    pieces = aio.tail_job_logs(job_id)
    text = await tail_until(pieces, "\none\n")
    ray.hold_tails()
    (tmp_path / "go").touch()
    async for piece in pieces:
        text += piece
    said = [line for line in text.splitlines() if line in ("one", "two", "three")]
    assert said == ["one", "two", "one", "three"]
    assert text.index("attempt 1 is over") > text.index("two")


async def test_what_is_kept_of_a_cluster_that_is_gone_is_shown_to_the_end(
    ray: FakeRay, tmp_path: Path
) -> None:
    job_id = await aio.submit_job("echo one; echo two")
    await aio.wait_for_all_jobs([job_id])
    await ray.go_dark()
    text = "".join([piece async for piece in aio.tail_job_logs(job_id)])
    assert text.endswith("\none\ntwo\n")


async def test_no_way_to_a_log_shows_the_secrets_of_its_job(ray: FakeRay, tmp_path: Path) -> None:
    secret = {"runtime_env": {"env_vars": {"API_KEY": "hunter2222"}}}
    run = program(tmp_path, "printf 'the key is hunt'", "WAIT", "echo er2222, really")
    job_id = await aio.submit_job(run, **secret)  # type: ignore[arg-type]
    pieces = aio.tail_job_logs(job_id)
    text = await tail_until(pieces, "the key is ")
    (tmp_path / "go").touch()
    text += "".join([piece async for piece in pieces])
    assert "hunter2222" in log_of(ray, job_id)
    service = raymc.get_unified_scheduler().service
    logs = [
        text,
        await service.whole_log(job_id),
        await asyncio.to_thread(lambda: "".join(service.tail(job_id))),
        service.log(job_id) or "",
        service.log(job_id, 1) or "",
        service.kept_log(job_id) or "",
        service.detail(job_id).logs or "",
    ]
    assert [log.partition("the key is ")[2] for log in logs] == ["<redacted>, really\n"] * len(logs)
