"""An executor that another package registers runs jobs, and nothing here is changed for it."""

import asyncio
import logging
import sys
from pathlib import Path

import pytest
from tests.support.system import System, fake

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.executors.contract import ENTRY_POINTS
from ray_multicluster_scheduler.executors.registry import Registry
from ray_multicluster_scheduler.model.states import JobState as S


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *entries: str) -> None:
    """Install a package that has only these entry points."""
    package = folder / "made_up-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINTS}]", *entries, ""]))
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])


async def test_its_jobs_run_to_their_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch, "made-up = tests.support.made_up_executor:MADE_UP")
    async with System(tmp_path, fake("a"), ended_jobs_on_cluster=0) as system:
        good = await system.submit("echo played; sleep 0.05", executor="made-up")
        bad = await system.submit("exit 3", executor="made-up")
        long = await system.submit("sleep 600", executor="made-up")
        plain = await system.submit("echo plain")
        await system.until(long, S.RUNNING)
        service = system.scheduler.service
        await asyncio.to_thread(service.stop, [long])
        ends = list((await system.finished(good, bad, long, plain)).values())
        assert [job.state for job in ends] == [S.SUCCEEDED, S.FAILED, S.STOPPED, S.SUCCEEDED]
        assert ends[0].reason == "it was played to its end"
        detail = await asyncio.to_thread(service.detail, good)
        assert (detail.executor, detail.logs) == ("made-up", "played\n")
        assert [attempt.executor for attempt in detail.attempts] == ["made-up"]
        assert system.ray["a"].calls["POST /api/jobs/"] == 1, "only the plain one went to Ray"
        (again,) = await asyncio.to_thread(service.retry, [bad])
        assert again.executor == "made-up"
        await system.until(again.submission_id, S.FAILED)


async def test_its_attempts_are_left_alone_where_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = sys.path
    install(tmp_path / "site", monkeypatch, "made-up = tests.support.made_up_executor:MADE_UP")
    async with System(tmp_path, fake("a")) as system:
        job = await system.submit("sleep 600", executor="made-up")
        await system.until(job, S.RUNNING)
        monkeypatch.setattr(sys, "path", here)
        with caplog.at_level(logging.WARNING):
            await system.restart_scheduler()
            assert (await system.until(await system.submit("echo"), S.SUCCEEDED)).attempt == 1
        service = system.scheduler.service
        await asyncio.to_thread(service.stop, [job])
        await system.until(await system.submit("sleep 0.3"), S.SUCCEEDED)
        says = (
            "its executor 'made-up' is not known to this version of the scheduler; "
            "its attempt on 'a' is left alone"
        )
        assert caplog.text.count(f"{job}: {says}") == 1
        assert (await asyncio.to_thread(service.explain, job)).why == says
        shown = await asyncio.to_thread(service.detail, job)
        assert (shown.state, shown.warnings, shown.logs, shown.has_log) == (S.RUNNING, (says,), None, False)


async def test_an_unknown_one_is_refused_by_name(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        with pytest.raises(InvalidRequest, match="there is no 'of-tomorrow'; there is ray-jobs"):
            await system.submit("echo", executor="of-tomorrow")
        with pytest.raises(InvalidRequest, match="nobody can submit to 'ray-client'"):
            await system.submit("echo", executor="ray-client")


def test_one_that_cannot_be_imported_is_as_good_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, monkeypatch, "broken = no_such_module:KIND", "wrong = os:path", "ray-jobs = os:path")
    with caplog.at_level(logging.ERROR):
        assert set(Registry().capabilities()) == {"ray-jobs", "ray-client"}
    assert "'broken' cannot be imported" in caplog.text
    assert "os:path is not an executor of the name 'wrong'" in caplog.text
