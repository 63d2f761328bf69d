"""Header blocks without state, and with the state of peers that have some."""

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymc_relay import frames, headers
from raymc_relay.errors import ProtocolError
from raymc_relay.headers import (
    LARGEST_CACHED,
    MOST_CACHED,
    BoundedCache,
    HeaderDecoder,
    encode,
    is_plain,
    is_request,
    is_response,
)

MOST = 64 * 1024
NAMES = st.one_of(
    st.sampled_from([":path", ":status", ":method", "content-type", "authorization", "user-agent", "te"]),
    st.from_regex(r"[a-z0-9_.-]{1,20}", fullmatch=True),
)
VALUES = st.one_of(
    st.sampled_from(["", "/", "200", "POST", "trailers", "application/grpc"]),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=200),
)
LISTS = st.lists(st.tuples(NAMES, VALUES), max_size=12).map(tuple)


def raw(fields: headers.Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]


@given(LISTS)
def test_what_is_encoded_here_is_decoded_here_and_elsewhere(fields: headers.Headers) -> None:
    block = encode(fields)
    assert HeaderDecoder(MOST).decode(block) == fields
    elsewhere = hpack.Decoder()
    elsewhere.max_allowed_table_size = elsewhere.header_table_size = 0
    assert [tuple(field) for field in elsewhere.decode(block, raw=True)] == raw(fields)


@given(st.lists(LISTS, min_size=1, max_size=6), st.booleans(), st.booleans())
def test_blocks_of_a_peer_with_a_dynamic_table_are_decoded(
    lists: list[headers.Headers], huffman: bool, off: bool
) -> None:
    encoder, decoder = hpack.Encoder(), HeaderDecoder(MOST)
    for index, fields in enumerate(lists):
        if off and index == 1:
            encoder.header_table_size = 0
        assert decoder.decode(encoder.encode(raw(fields), huffman=huffman)) == fields


def test_a_block_that_depends_on_a_table_is_not_mixed_up_with_that_of_another_peer() -> None:
    one, two = (hpack.Encoder(), HeaderDecoder(MOST)), (hpack.Encoder(), HeaderDecoder(MOST))
    for (encoder, decoder), value in ((one, "1"), (two, "2")):
        decoder.decode(encoder.encode([("who", value)]))
    again = [encoder.encode([("who", value)]) for (encoder, _), value in ((one, "1"), (two, "2"))]
    assert again[0] == again[1]
    assert one[1].decode(again[0]) == (("who", "1"),)
    assert two[1].decode(again[1]) == (("who", "2"),)


def test_a_literal_to_be_indexed_is_kept_only_if_there_is_no_table() -> None:
    literal = b"\x40\x03who\x01x"
    with_table, without = HeaderDecoder(MOST), HeaderDecoder(MOST)
    assert without.decode(b"\x20" + literal) == without.decode(literal) == (("who", "x"),)
    assert with_table.decode(literal) == (("who", "x"),)
    assert with_table.decode(b"\xbe") == (("who", "x"),)
    with pytest.raises(ProtocolError):
        without.decode(b"\xbe")


def test_after_its_acknowledgement_a_peer_has_no_table() -> None:
    decoder = HeaderDecoder(MOST)
    decoder.decode(b"\x40\x03who\x01x")
    decoder.settings_acknowledged()
    with pytest.raises(ProtocolError):
        decoder.decode(b"\xbe")
    with pytest.raises(ProtocolError):
        HeaderDecoder.decode(decoder, b"\x3f\xe1\x1f")  # it wants 4,096 bytes again
    assert decoder.decode(b"\x20\x84") == ((":path", "/"),)


@given(st.binary(max_size=60))
def test_any_bytes_are_headers_or_a_protocol_error(block: bytes) -> None:
    for start in (b"", b"\x20"):
        decoder = HeaderDecoder(MOST)
        try:
            found = decoder.decode(start + block)
        except ProtocolError:
            continue
        assert all(isinstance(part, str) for field in found for part in field)


@pytest.mark.parametrize("start", [b"", b"\x20", b"\x40\x01a\x01b"])
def test_a_small_block_with_many_headers_is_refused(start: bytes) -> None:
    with pytest.raises(ProtocolError) as error:
        HeaderDecoder(MOST).decode(start + b"\x90" * 20_000)
    assert error.value.code == frames.ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "field", [b"\x00\x01A\x01b", b"\x00\x01a\x01\n", b"\x00\x00\x01b", b"\x00\x02a \x01b"]
)
def test_characters_that_mean_something_elsewhere_are_refused(field: bytes) -> None:
    with pytest.raises(ProtocolError):
        HeaderDecoder(MOST).decode(field)


def test_secrets_are_never_to_be_indexed() -> None:
    found = list(hpack.Decoder().decode(encode([("authorization", "Bearer x"), ("who", "me")])))
    assert [type(field) for field in found] == [hpack.NeverIndexedHeaderTuple, hpack.HeaderTuple]


def test_the_caches_are_bounded() -> None:
    cache: BoundedCache[int, int] = BoundedCache()
    for number in range(2 * MOST_CACHED):
        cache.keep(number, number)
    assert len(cache) == MOST_CACHED
    assert 2 * MOST_CACHED - 1 in cache
    large = (("large", "x" * LARGEST_CACHED),)
    HeaderDecoder(MOST).decode(encode(large))
    assert large not in headers._encoded
    assert large not in headers._decoded.values()


REQUEST = ((":method", "POST"), (":scheme", "http"), (":path", "/a/B"), ("te", "trailers"))


def test_the_headers_of_a_request() -> None:
    assert is_request(REQUEST)
    assert not is_request(())
    assert not is_request(REQUEST[1:])
    assert not is_request((*REQUEST, (":authority", "x")))
    assert not is_request((REQUEST[0], *REQUEST))
    assert not is_request(((":status", "200"), *REQUEST))
    assert not is_request((*REQUEST, ("connection", "close")))
    assert not is_request((*REQUEST[:3], ("te", "gzip")))


def test_the_headers_of_an_answer() -> None:
    assert is_response(((":status", "200"), ("a", "b")))
    assert not is_response((("a", "b"), (":status", "200")))
    assert not is_response(())
    assert is_plain((("grpc-status", "0"),))
    assert not is_plain(((":status", "200"),))
