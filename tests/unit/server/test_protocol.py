"""What one turn of the loop writes is sent as one."""

import asyncio

from ray_multicluster_scheduler.server.protocol import MOST_HELD_BYTES, WrittenTogether


class Transport:
    """Notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"


async def test_head_and_body_are_sent_as_one() -> None:
    real = Transport()
    transport = WrittenTogether(real, asyncio.get_running_loop())  # type: ignore[arg-type]
    transport.write(b"head ")
    transport.write(b"body")
    assert real.sent == []
    await asyncio.sleep(0)
    transport.write(b"next")
    await asyncio.sleep(0)
    assert real.sent == [b"head body", b"next"]
    assert transport.get_extra_info("peer") == "the peer"


async def test_much_is_sent_at_once_so_that_a_slow_reader_is_felt() -> None:
    real = Transport()
    transport = WrittenTogether(real, asyncio.get_running_loop())  # type: ignore[arg-type]
    transport.write(b"x" * MOST_HELD_BYTES)
    assert real.sent == []
    transport.write(b"y")
    assert [len(data) for data in real.sent] == [MOST_HELD_BYTES + 1]


async def test_what_is_left_is_sent_before_the_end_and_nothing_after_it() -> None:
    real = Transport()
    transport = WrittenTogether(real, asyncio.get_running_loop())  # type: ignore[arg-type]
    transport.write(b"last")
    transport.close()
    transport.write(b"late")
    await asyncio.sleep(0)
    assert real.sent == [b"last"]
    assert real.closed
