"""Talking to clusters from any thread, on one loop with connections that are kept."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, cast

import pytest

from ray_multicluster_scheduler.config import Config, Settings, parse_config
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.ports import ClusterConnection
from ray_multicluster_scheduler.runtime import ClusterLoop

Connections = Mapping[str, ClusterConnection]


class Connection:
    """Knows only whether it was closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    async def close(self) -> None:
        self.closed.set()


class World:
    """A loop, and the connections that it has opened, by cluster, oldest first."""

    def __init__(self) -> None:
        self.opened: dict[str, list[Connection]] = {}
        self.loop = ClusterLoop(clusters(a=1, b=2), self._connect)

    def _connect(self, spec: ClusterSpec, _: Settings) -> ClusterConnection:
        self.opened.setdefault(spec.name, []).append(connection := Connection())
        return cast("ClusterConnection", connection)


def clusters(**ports: int) -> Config:
    entries = "".join(
        f"  {name}: {{head_address: '127.0.0.1:{port}', dashboard: 'http://127.0.0.1:{port}'}}\n"
        for name, port in ports.items()
    )
    return parse_config(f"clusters:\n{entries}", Path("clusters.yaml"))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.close()


async def names(connections: Connections) -> list[str]:
    return list(connections)


def test_nothing_is_opened_before_it_is_needed_and_all_is_closed_at_the_end(world: World) -> None:
    assert not world.opened
    assert world.loop.begin(names).result(60) == ["a", "b"]
    assert world.loop.begin(names).result(60) == ["a", "b"]
    world.loop.close()
    assert [len(each) for each in world.opened.values()] == [1, 1]
    assert all(connection.closed.is_set() for each in world.opened.values() for connection in each)


def test_it_works_inside_a_running_loop(world: World) -> None:
    async def inside() -> list[str]:
        return world.loop.begin(names).result(60)

    assert asyncio.run(inside()) == ["a", "b"]


def test_what_goes_wrong_reaches_the_caller_and_the_loop_goes_on(world: World) -> None:
    async def ask(_: Connections) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        world.loop.begin(ask).result(60)
    assert world.loop.begin(names).result(60) == ["a", "b"]


def test_a_question_that_is_under_way_ends_with_the_loop(world: World) -> None:
    asked = threading.Event()

    async def ask(_: Connections) -> None:
        asked.set()
        await asyncio.sleep(3600)

    running = world.loop.begin(ask)
    assert asked.wait(60)
    world.loop.close()
    with pytest.raises(CancelledError):
        running.result(60)


def test_another_configuration_keeps_the_connections_that_did_not_change(world: World) -> None:
    world.loop.begin(names).result(60)
    world.loop.change(clusters(a=1, b=3, c=4))
    assert world.loop.begin(names).result(60) == ["a", "b", "c"]
    assert {name: len(each) for name, each in world.opened.items()} == {"a": 1, "b": 2, "c": 1}
    assert world.opened["b"][0].closed.is_set()
    assert not world.opened["a"][0].closed.is_set()
