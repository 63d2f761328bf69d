"""What a request claims, what Ray is told, and what a handle knows of its class."""

from typing import Any

import pytest

from ray_multicluster_scheduler.errors import InvalidRequest, InvalidResources
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.tasks.callables import (
    GENERATOR,
    CallableCache,
    is_ordered,
    methods_of,
    options_and_claim,
)


class Worker:
    def __init__(self) -> None: ...

    def plain(self) -> int:
        return 1

    def yielding(self) -> Any:
        yield 1

    def several(self) -> tuple[int, int]:
        return 1, 2

    several.__ray_num_returns__ = 2  # type: ignore[attr-defined]


class AsyncWorker:
    async def wait(self) -> None: ...


def a_function() -> None: ...


def test_requirements_become_options_and_a_claim_in_bytes() -> None:
    options, claim = options_and_claim({}, {"CPU": 1, "memory": 2, "GPU": 0.5, "rack": 1}, {}, default_cpus=1)
    assert options == {"num_cpus": 1.0, "num_gpus": 0.5, "memory": 2 * GIB, "resources": {"rack": 1.0}}
    assert claim == {"CPU": 1.0, "memory": 2.0 * GIB, "GPU": 0.5, "rack": 1.0}


def test_requirements_replace_what_the_decorator_says_and_other_options_stay() -> None:
    defaults = {"num_cpus": 8, "num_gpus": 1, "resources": {"rack": 1}, "max_restarts": 3}
    options, claim = options_and_claim(defaults, {"CPU": 2}, {"name": "x", "lifetime": None}, default_cpus=1)
    assert options == {"num_cpus": 2.0, "max_restarts": 3, "name": "x"}
    assert claim == {"CPU": 2.0}


def test_requirements_without_a_cpu_claim_none() -> None:
    options, claim = options_and_claim({}, {"GPU": 1}, {}, default_cpus=1)
    assert options == {"num_cpus": 0, "num_gpus": 1.0}
    assert claim == {"GPU": 1.0}


def test_without_requirements_the_decorator_counts_and_else_rays_defaults() -> None:
    assert options_and_claim({"num_cpus": 3}, None, {}, default_cpus=1) == ({"num_cpus": 3}, {"CPU": 3.0})
    assert options_and_claim({}, None, {}, default_cpus=1) == ({}, {"CPU": 1})
    assert options_and_claim({}, None, {}, default_cpus=0) == ({}, {})


def test_impossible_requirements_are_refused() -> None:
    with pytest.raises(InvalidResources, match="negative"):
        options_and_claim({}, {"CPU": -1}, {}, default_cpus=1)


def test_a_handle_knows_methods_their_returns_and_which_of_them_yield() -> None:
    assert methods_of(Worker) == {"plain": 1, "yielding": GENERATOR, "several": 2}


def test_calls_keep_their_order_unless_the_actor_is_async_or_has_several_threads() -> None:
    assert is_ordered(Worker, {})
    assert not is_ordered(Worker, {"max_concurrency": 2})
    assert not is_ordered(Worker, {"concurrency_groups": {"io": 2}})
    assert not is_ordered(AsyncWorker, {})


def test_the_same_function_is_the_same_code_and_a_number_is_none() -> None:
    cache = CallableCache()
    assert cache.get(a_function) is cache.get(a_function)
    with pytest.raises(InvalidRequest, match="function or a class"):
        cache.get(3)
