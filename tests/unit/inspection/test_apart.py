"""Talking to clusters where no engine runs: on a loop that ends with the question."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError
from typing import Any, cast

import pytest

from ray_multicluster_scheduler.inspection.apart import begin_apart
from ray_multicluster_scheduler.ports import RayApi


class Api:
    """Knows only whether it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    async def close(self) -> None:
        self.closed.set()


@pytest.fixture
def api() -> Api:
    return Api()


def opened(api: Api) -> Mapping[str, RayApi]:
    return {"a": cast("RayApi", api)}


def test_the_answer_comes_and_the_connection_is_closed(api: Api) -> None:
    async def ask(apis: Mapping[str, RayApi]) -> list[str]:
        return list(apis)

    assert begin_apart(lambda: opened(api), ask).result(60) == ["a"]
    assert api.closed.is_set()


def test_it_works_inside_a_running_loop(api: Api) -> None:
    async def ask(_: Mapping[str, RayApi]) -> int:
        return 7

    async def inside() -> int:
        return begin_apart(lambda: opened(api), ask).result(60)

    assert asyncio.run(inside()) == 7


def test_what_goes_wrong_reaches_the_caller(api: Api) -> None:
    async def ask(_: Mapping[str, RayApi]) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        begin_apart(lambda: opened(api), ask).result(60)
    assert api.closed.is_set()


def test_a_question_that_is_given_up_ends_and_closes_its_connection(api: Api) -> None:
    asked = threading.Event()

    async def ask(_: Mapping[str, RayApi]) -> None:
        asked.set()
        await asyncio.sleep(3600)

    running = begin_apart(lambda: opened(api), ask)
    assert asked.wait(60)
    running.cancel()
    with pytest.raises(CancelledError):
        running.result(60)
    assert api.closed.wait(60)
