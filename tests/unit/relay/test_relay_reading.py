"""What a peer sends is cut into the same frames, however the network has cut it; bytes wait in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymc_relay import frames
from raymc_relay.connection import FrameReader
from raymc_relay.frames import Chunk
from raymc_relay.limits import RelayLimits, WorkLimit
from raymc_relay.outgoing import SMALL, ByteQueue


class Reader(FrameReader[int]):
    """Writes down what comes; the parts of one frame of DATA are put together."""

    def __init__(self) -> None:
        super().__init__(most_frame=2**20, most_control=1000)
        self.found: list[tuple[object, ...]] = []
        self.padding = 0
        self.ended: list[int] = []

    def data_begins(self, stream_id: int, size: int) -> int:
        self.found.append(("data", stream_id, size, b""))
        return stream_id

    def data(self, owner: int | None, payload: Chunk, padding: int, *, ends: bool) -> None:
        kind, stream_id, size, before = self.found[-1]
        assert stream_id == owner
        assert isinstance(before, bytes)
        self.found[-1] = (kind, stream_id, size, before + payload)
        self.padding += padding
        if ends:
            self.ended.append(stream_id)

    def control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        self.found.append((kind, flags, stream_id, payload))


DATA = st.tuples(
    st.just(frames.DATA),
    st.sampled_from([0, frames.END_STREAM]),
    st.integers(1, 5),
    st.one_of(
        st.binary(max_size=30),
        st.integers(16_000, 40_000).map(lambda size: bytes(range(256)) * (size // 256)),
    ),
    st.one_of(st.none(), st.integers(0, 255)),
)
OTHER = st.tuples(
    st.integers(1, 12), st.integers(0, 255), st.integers(0, 5), st.binary(max_size=30), st.none()
)


def as_bytes(kind: int, flags: int, stream_id: int, payload: bytes, padding: int | None) -> bytes:
    if padding is not None:
        flags |= frames.PADDED
        payload = bytes([padding]) + payload + bytes(padding)
    return frames.frame(kind, flags, stream_id, payload)


@given(st.lists(st.one_of(DATA, OTHER), max_size=8), st.lists(st.integers(1, 30_000), max_size=20))
def test_frames_do_not_depend_on_how_they_arrive(
    sent: list[tuple[int, int, int, bytes, int | None]], sizes: list[int]
) -> None:
    stream = b"".join(as_bytes(*frame) for frame in sent)
    reader = Reader()
    position = 0
    for size in [*sizes, len(stream) + 1]:
        reader.feed(stream[position : position + size])
        position += size
    expected: list[tuple[object, ...]] = []
    for kind, flags, stream_id, payload, padding in sent:
        if kind == frames.DATA:
            size = len(payload) + (0 if padding is None else padding + 1)
            expected.append(("data", stream_id, size, payload))
        elif kind < 10:
            expected.append((kind, flags, stream_id, payload))
    assert reader.found == expected
    assert reader.padding == sum(padding + 1 for *_, padding in sent if padding is not None)
    assert reader.ended == [frame[2] for frame in sent if frame[0] == frames.DATA and frame[1]]


def test_a_large_frame_is_handed_on_before_it_is_whole() -> None:
    reader = Reader()
    reader.feed(frames.frame(frames.DATA, 1, 1, bytes(100_000))[:50_009])
    assert len(reader.found[0][3]) == 50_000  # type: ignore[arg-type]
    assert not reader.ended


@given(st.lists(st.one_of(st.integers(1, 3 * SMALL), st.integers(-3 * SMALL, -1)), max_size=60))
def test_bytes_leave_a_queue_in_the_order_in_which_they_came(steps: list[int]) -> None:
    """A positive number comes, a negative one leaves."""
    queue, came, left = ByteQueue(), b"", b""
    for step in steps:
        if step > 0:
            piece = bytes((len(came) + index) % 251 for index in range(step))
            queue.push(memoryview(piece) if step % 2 else piece)
            came += piece
        elif queue.size:
            taken = queue.take(-step)
            assert 0 < len(taken) <= -step
            left += taken
        assert queue.size == len(came) - len(left)
    while queue.size:
        left += queue.take(queue.size)
    assert left == came


def test_a_queue_of_single_bytes_holds_few_objects_and_a_small_part_keeps_no_large_buffer() -> None:
    queue = ByteQueue()
    for _ in range(10 * SMALL):
        queue.push(b"x")
    assert len(queue._chunks) <= 11
    queue.push(memoryview(bytes(100_000))[:SMALL])
    assert isinstance(queue._chunks[-1], bytes)
    assert queue.clear() == 11 * SMALL
    assert queue.size == 0


def test_resets_are_forgiven_after_a_while() -> None:
    limit = WorkLimit(3, per_second=1.0)
    assert [limit.exceeded(now) for now in (10.0, 10.0, 10.0, 10.0)] == [False, False, False, True]
    assert [limit.exceeded(now) for now in (12.0, 12.0)] == [False, True]


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_window_bytes": 2**22, "stream_window_bytes": 2**20},
        {"connection_window_bytes": 1000},
        {"frame_bytes": 1000},
    ],
)
def test_limits_that_http2_does_not_allow_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="bytes"):
        RelayLimits(**wrong)
