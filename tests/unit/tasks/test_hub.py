"""How the hub takes batches and answers at once what it can; what takes time is tested on real clusters."""

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ray_multicluster_scheduler.tasks.wire.connection import HubConnection
from ray_multicluster_scheduler.tasks.wire.hub import Hub, Response
from ray_multicluster_scheduler.tasks.wire.serialization import deserialize_error


def test_what_is_done_at_once_comes_with_the_reply() -> None:
    assert Hub().submit(0, [(7, "register_code", "digest", b"code")]) == [(7, True, [])]


def test_what_cannot_be_started_is_an_answer_and_holds_up_no_other() -> None:
    arguments: tuple[Any, ...] = ((pickle.dumps(((), {})), []), [])
    responses = Hub().submit(
        0, [(1, "call", "nobody", "method", {}, *arguments), (2, "register_code", "a", b"")]
    )
    (number, good, content), second = responses
    assert (number, good) == (1, False)
    assert "nobody was given up" in str(deserialize_error(content))
    assert second == (2, True, [])


def test_batches_start_in_the_order_of_their_numbers_whichever_thread_is_first() -> None:
    begun: list[int] = []

    class Watched(Hub):
        def _start(self, number: int, verb: str, *details: Any) -> Response | None:
            begun.append(number)
            return super()._start(number, verb, *details)

    hub = Watched()
    with ThreadPoolExecutor(8) as threads:
        replies = [
            threads.submit(hub.submit, n, [(n, "register_code", "a", b"")]) for n in reversed(range(8))
        ]
    assert begun == list(range(8))
    assert [reply.result() for reply in replies] == [[(n, True, [])] for n in reversed(range(8))]


def test_a_listener_to_whom_nothing_comes_returns_a_sign_of_life() -> None:
    assert Hub().next_responses(0.0) == []


def test_why_an_actor_could_not_be_created_is_remembered_until_its_handle_is_gone() -> None:
    hub = Hub()
    arguments: tuple[Any, ...] = ((pickle.dumps(((), {})), []), [])
    hub.submit(0, [(1, "register_code", "bad", b"no pickle"), (2, "create", "key", "bad", {}, *arguments)])
    ((_, _, content),) = hub.submit(1, [(3, "call", "key", "method", {}, *arguments)])
    assert "could not be created" in str(deserialize_error(content))
    hub.submit(2, [(4, "release", "key")])
    ((_, _, content),) = hub.submit(3, [(5, "call", "key", "method", {}, *arguments)])
    assert "was given up" in str(deserialize_error(content))


async def test_a_listener_that_is_cancelled_as_a_response_comes_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    response: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(HubConnection, "_request", lambda *_: response)
    listening = asyncio.create_task(HubConnection(None).listen())  # type: ignore[arg-type]
    await asyncio.sleep(0.001)
    response.set_result([])
    await asyncio.sleep(0)
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
