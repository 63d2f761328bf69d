"""Frames of HTTP/2 and messages of gRPC, as bytes."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymc_relay import frames
from raymc_relay.errors import ProtocolError
from raymc_relay.headers import HeaderBlock, HeaderBlocks


def split(data: bytes) -> list[tuple[int, int, int, bytes]]:
    found = []
    while data:
        word, flags, stream_id = frames.unpack_header(data)
        end = frames.HEADER_BYTES + (word >> 8)
        found.append((word & 0xFF, flags, stream_id, data[frames.HEADER_BYTES : end]))
        data = data[end:]
    return found


def test_a_frame_is_length_kind_flags_stream_and_payload() -> None:
    assert frames.frame(frames.DATA, 1, 5, b"abc").hex() == "000003000100000005616263"
    assert frames.window_update(7, 258).hex() == "00000408000000000700000102"
    assert frames.rst_stream(3, frames.CANCEL).hex() == "00000403000000000300000008"
    assert frames.SETTINGS_ACK.hex() == "000000040100000000"
    assert frames.ping(b"12345678", ack=True).hex() == "000008060100000000" + b"12345678".hex()


def test_settings_and_goaway_can_be_read_again() -> None:
    values = {frames.HEADER_TABLE_SIZE: 0, frames.MAX_FRAME_SIZE: 2**20}
    [(kind, flags, stream_id, payload)] = split(frames.settings(values))
    assert (kind, flags, stream_id, dict(frames.parse_settings(payload))) == (frames.SETTINGS, 0, 0, values)
    [(_, _, _, payload)] = split(frames.goaway(9, frames.ENHANCE_YOUR_CALM, "slow down"))
    assert frames.parse_goaway(payload) == (9, frames.ENHANCE_YOUR_CALM)


@given(block=st.binary(max_size=200), most=st.integers(min_value=1, max_value=60), ends=st.booleans())
def test_a_header_block_of_any_length_is_put_together_again(block: bytes, most: int, ends: bool) -> None:
    blocks = HeaderBlocks(most_bytes=200, most_frames=200)
    found = split(frames.header_frames(3, block, end_stream=ends, most=most))
    assert all(len(payload) <= most for _, _, _, payload in found)
    results = [
        (blocks.begin if kind == frames.HEADERS else blocks.go_on)(flags, stream_id, payload)
        for kind, flags, stream_id, payload in found
    ]
    assert results[:-1] == [None] * (len(found) - 1)
    assert results[-1] == HeaderBlock(3, block, ends)
    assert not blocks.is_open


def test_padding_and_priority_are_cut_off() -> None:
    blocks = HeaderBlocks(most_bytes=10, most_frames=1)
    flags = frames.END_HEADERS | frames.PADDED | frames.HAS_PRIORITY
    assert blocks.begin(flags, 1, b"\2" + bytes(5) + b"abc" + bytes(2)) == HeaderBlock(1, b"abc", False)
    with pytest.raises(ProtocolError):
        blocks.begin(flags, 1, b"\6" + bytes(5) + b"abc")


@given(st.text())
def test_a_status_message_is_printable_ascii_and_can_be_read_again(message: str) -> None:
    encoded = frames.percent_encoded(message)
    assert all(" " <= character <= "~" for character in encoded)
    assert unquote(encoded) == message.encode(errors="replace").decode()


@given(size=st.integers(min_value=0, max_value=2**32 - 1), compressed=st.booleans())
def test_the_prefix_of_a_message_can_be_read_again(size: int, compressed: bool) -> None:
    assert frames.parse_prefix(frames.message_prefix(size, compressed=compressed)) == (compressed, size)
