"""Rows for many jobs and the timeline through the one door: what is counted, and what others do not see."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.system import System, fake
from tests.support.waiting import eventually

from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service import jobs
from ray_multicluster_scheduler.service.caller import Caller, Role
from ray_multicluster_scheduler.service.query import JobQuery
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.service import LocalService

S = JobState


def of(system: System, user: str, role: Role = Role.SUBMIT) -> LocalService:
    return system.scheduler.service.as_caller(Caller(user=user, role=role))


async def submit(system: System, user: str, submission_id: str, entrypoint: str, **options: object) -> None:
    """Submit in a thread: the first one waits for a look at the cluster, which answers on this loop."""
    request = JobRequest(entrypoint=entrypoint, user=user, submission_id=submission_id, **options)
    await asyncio.to_thread(of(system, user).submit, [request])


async def test_a_head_is_counted_with_its_members_and_the_others_are_not_named(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=8)) as system:
        for n in range(3):
            await submit(system, "ann", f"x-{n}", "sleep 1000" if n == 2 else "echo", group="x")
        await submit(system, "ann", "after", "echo", depends_on=["x-2"])
        await submit(system, "bob", "alone", "echo")
        await system.finished("x-0", "x-1", "alone")
        await system.until("x-2", S.RUNNING)

        page = of(system, "ann").list_jobs(JobQuery(heads_only=True))
        assert [job.submission_id for job in page.jobs] == ["x-0"]
        assert page.members == {"x-0": {S.SUCCEEDED: 2, S.RUNNING: 1, S.QUEUED: 1}}
        under = of(system, "ann").list_jobs(JobQuery(head="x-0"))
        assert [(job.submission_id, job.head) for job in under.jobs] == [
            ("after", "x-0"),
            ("x-2", "x-0"),
            ("x-1", "x-0"),
            ("x-0", None),
        ]
        assert under.members == {}

        everybodys = of(system, "root", Role.OPERATE).list_jobs(JobQuery(heads_only=True))
        assert [job.submission_id for job in everybodys.jobs] == ["alone", "x-0"]
        assert everybodys.members == page.members


async def test_jobs_that_wait_for_one_reason_are_found_page_by_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "MOST_PAGE_JOBS", 2)  # so that several looks are needed
    async with System(tmp_path, fake("a", cpus=1)) as system:
        await submit(system, "ann", "runs", "sleep 1000")
        await system.until("runs", S.RUNNING)
        for n in range(3):
            await submit(system, "ann", f"room-{n}", "echo")
            await submit(system, "ann", f"after-{n}", "echo", depends_on=["runs"])
        ann = of(system, "ann")
        waiting = JobQuery(wait_reason="NO_ROOM")
        await eventually(
            lambda: len(ann.list_jobs(waiting).jobs) == 3
        )  # the engine hears of them in its time
        found, query = [], replace(waiting, limit=2)
        while True:
            page = ann.list_jobs(query)
            found.append([job.submission_id for job in page.jobs])
            if page.next_cursor is None:
                break
            query = replace(query, cursor=page.next_cursor)
        assert found == [["room-2", "room-1"], ["room-0"]]
        after = ann.list_jobs(JobQuery(wait_reason="DEPENDENCIES", states=(S.QUEUED, S.FAILED))).jobs
        assert [job.submission_id for job in after] == ["after-2", "after-1", "after-0"]
        assert ann.list_jobs(JobQuery(wait_reason="NO_ROOM", states=(S.RUNNING,))).jobs == ()


async def test_the_jobs_of_others_are_in_no_row_and_no_timeline(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=8)) as system:
        for n in range(2):
            await submit(system, "ann", f"x-{n}", "echo", group="x")
        await submit(system, "bob", "his", "echo", group="x")
        await system.finished("x-0", "x-1", "his")

        bob = of(system, "bob", Role.READ)
        page = bob.list_jobs(JobQuery(heads_only=True))
        assert ([job.submission_id for job in page.jobs], page.members) == (["his"], {})
        assert bob.list_jobs(JobQuery(head="x-0")).jobs == ()
        assert [span.submission_id for span in bob.timeline(since=0.0).spans] == ["his"]
        everybodys = of(system, "root", Role.OPERATE).timeline(since=0.0)
        assert {span.submission_id for span in everybodys.spans} == {"x-0", "x-1", "his"}


async def test_a_timeline_ends_now_and_says_when_there_is_more(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=8), fake("b", cpus=8)) as system:
        ids = [await system.submit("echo", group="g", job_id=f"n{n}") for n in range(3)]
        await system.finished(*ids)
        service = system.scheduler.service
        before = system.scheduler.clock.now()
        whole = service.timeline(since=1.0)
        assert before <= whole.until <= system.scheduler.clock.now()
        assert (whole.since, whole.truncated) == (1.0, False)
        assert {(span.job_id, span.group, span.outcome) for span in whole.spans} == {
            (f"n{n}", "g", "SUCCEEDED") for n in range(3)
        }
        assert [span.placed_at for span in whole.spans] == sorted(span.placed_at for span in whole.spans)
        for span in whole.spans:
            assert (span.attempt, span.state, span.claim) == (1, S.SUCCEEDED, {"CPU": 1.0})
            assert span.ended_at is not None
            assert span.placed_at <= span.ended_at

        newest = service.timeline(since=1.0, limit=2)
        assert (newest.spans, newest.truncated) == (whole.spans[1:], True)
        here = [service.timeline(since=1.0, cluster=name).spans for name in ("a", "b")]
        assert sum(map(len, here)) == 3
        assert service.timeline(since=1.0, until=2.0).spans == ()
