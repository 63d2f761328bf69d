"""Talking to clusters where no engine runs: on a loop that ends with the question."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError
from typing import Any, cast

import pytest

from ray_multicluster_scheduler.inspection.temporary_loop import begin_on_temporary_loop
from ray_multicluster_scheduler.ports import ClusterConnection


class Connection:
    """Knows only whether it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    async def close(self) -> None:
        self.closed.set()


@pytest.fixture
def connection() -> Connection:
    return Connection()


def opened(connection: Connection) -> Mapping[str, ClusterConnection]:
    return {"a": cast("ClusterConnection", connection)}


def test_the_answer_comes_and_the_connection_is_closed(connection: Connection) -> None:
    async def ask(connections: Mapping[str, ClusterConnection]) -> list[str]:
        return list(connections)

    assert begin_on_temporary_loop(lambda: opened(connection), ask).result(60) == ["a"]
    assert connection.closed.is_set()


def test_it_works_inside_a_running_loop(connection: Connection) -> None:
    async def ask(_: Mapping[str, ClusterConnection]) -> int:
        return 7

    async def inside() -> int:
        return begin_on_temporary_loop(lambda: opened(connection), ask).result(60)

    assert asyncio.run(inside()) == 7


def test_what_goes_wrong_reaches_the_caller(connection: Connection) -> None:
    async def ask(_: Mapping[str, ClusterConnection]) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        begin_on_temporary_loop(lambda: opened(connection), ask).result(60)
    assert connection.closed.is_set()


def test_a_question_that_is_given_up_ends_and_closes_its_connection(connection: Connection) -> None:
    asked = threading.Event()

    async def ask(_: Mapping[str, ClusterConnection]) -> None:
        asked.set()
        await asyncio.sleep(3600)

    running = begin_on_temporary_loop(lambda: opened(connection), ask)
    assert asked.wait(60)
    running.cancel()
    with pytest.raises(CancelledError):
        running.result(60)
    assert connection.closed.wait(60)
