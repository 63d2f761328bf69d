"""Lists through the one door: pages, and a bound for everything that may be long."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.system import System, fake

from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.service import query
from ray_multicluster_scheduler.service.query import JobQuery, all_events, all_jobs


@pytest.mark.parametrize("size", [1, 4, 7, 8])
async def test_the_cursor_of_the_last_page_is_none(tmp_path: Path, size: int) -> None:
    async with System(tmp_path, fake("a")) as system:
        ids = await system.submit_many([{"entrypoint": "sleep 1000"}] * 8)
        service = system.scheduler.service
        seen, cursor, cursors = [], None, []
        while True:
            page = service.list_jobs(JobQuery(limit=size, cursor=cursor))
            seen += [job.submission_id for job in page.jobs]
            cursors.append(cursor := page.next_cursor)
            if cursor is None:
                break
        assert seen == ids[::-1]
        assert len(cursors) == -(-8 // size)
        assert [job.submission_id for job in all_jobs(service, JobQuery(), limit=5)] == ids[:2:-1]
        assert len(list(all_jobs(service, JobQuery(), limit=None))) == 8


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"limit": 1001}, "limit"),
        ({"limit": -1}, "limit"),
        ({"cursor": "abc"}, "cursor"),
        ({"cursor": "9" * 30}, "cursor"),
        ({"since": float("nan")}, "since"),
        ({"since": "yesterday"}, "since"),
        ({"changed_since": -1}, "changed_since"),
        ({"wait_reason": "BOREDOM"}, "wait_reason"),
        ({"changed_until": float("nan")}, "changed_until"),
        ({"text": "\0"}, "text"),
    ],
)
async def test_what_cannot_be_asked_for_is_refused_by_its_name(
    tmp_path: Path, asked: dict[str, Any], named: str
) -> None:
    async with System(tmp_path, fake("a")) as system:
        with pytest.raises(InvalidRequest, match=f"^{named}"):
            system.scheduler.service.list_jobs(JobQuery(**asked))


async def test_events_and_attempts_are_bounded_and_events_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with System(tmp_path, fake("a"), max_infra_retries=10) as system:
        service = system.scheduler.service
        job_id = await system.submit("exit 3", max_retries=4)
        await system.finished(job_id)
        whole = service.events(job_id)
        with pytest.raises(InvalidRequest, match=r"^limit: an answer has 10000 events at most"):
            service.events(job_id, limit=10_001)
        with pytest.raises(InvalidRequest, match=r"^after"):
            service.events(after=-1)
        monkeypatch.setattr(query, "EVENTS", 3)
        assert tuple(all_events(service, job_id)) == whole
        assert [each.number for each in service.detail(job_id).attempts] == [1, 2, 3, 4, 5]
        monkeypatch.setattr("ray_multicluster_scheduler.service.service.MOST_ATTEMPTS", 2)
        detail = service.detail(job_id)
        assert ([each.number for each in detail.attempts], detail.attempt) == ([4, 5], 5)
