"""Store calls run one after another on a thread of their own, which is known as such."""

import pytest

from ray_multicluster_scheduler.engine.context import StoreThread


async def test_calls_run_in_order_and_return_their_results() -> None:
    offload, seen = StoreThread(), list[int]()
    for number in range(3):
        await offload(seen.append, number)
    assert seen == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        await offload(lambda: 1 / 0)
    offload.close()


async def test_a_function_can_tell_that_it_runs_on_the_thread() -> None:
    offload, other = StoreThread(), StoreThread()
    assert await offload(offload.is_here)
    assert not await other(offload.is_here)
    assert not offload.is_here()
    offload.close()
    other.close()
