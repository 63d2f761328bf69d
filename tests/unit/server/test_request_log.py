"""What the server's log says of requests, and when it is written."""

import asyncio
import io
import json
import logging

import pytest
from tests.support.door import ANYBODY

from ray_multicluster_scheduler.log_format import JsonLines, LogLines
from ray_multicluster_scheduler.server import door
from ray_multicluster_scheduler.server.door import log_request


class Log:
    """The log of a server."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = LogLines(self.stream)
        self.handler.setFormatter(JsonLines())

    @property
    def told(self) -> list[str]:
        return [f"{line['what']} {line['request_id']}" for line in self.lines]

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Log:
    found = Log()
    monkeypatch.setattr(door.log, "handlers", [found.handler])
    monkeypatch.setattr(door.log, "level", logging.INFO)
    return found


def end_request(name: str) -> None:
    log_request(
        {"type": "http", "method": "GET", "state": {"caller": ANYBODY, "request_id": name}}, 200, 0.0123
    )


async def test_a_line_says_who_asked_what_and_how_it_went(written: Log) -> None:
    end_request("a")
    written.handler.flush()

    (line,) = written.lines
    assert {**line, "at": 0} == {
        "at": 0, "level": "info", "what": "request", "method": "GET", "route": None, "status": 200,
        "ms": 12.3, "user": "anybody", "request_id": "a",
    }  # fmt: skip


async def test_requests_wait_for_each_other_but_not_for_long(
    written: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: asyncio.Queue[str] = asyncio.Queue()
    monkeypatch.setattr(written.stream, "write", writes.put_nowait)
    end_request("a")
    end_request("b")
    assert writes.empty()

    both = await writes.get()
    assert [json.loads(line)["request_id"] for line in both.splitlines()] == ["a", "b"]


async def test_a_problem_is_told_at_once_and_after_what_came_before_it(written: Log) -> None:
    end_request("a")
    door.log.warning("trouble", extra={"request_id": "b"})
    assert written.told == ["request a", "trouble b"]
    end_request("c")
    written.handler.flush()
    assert written.told == ["request a", "trouble b", "request c"]
