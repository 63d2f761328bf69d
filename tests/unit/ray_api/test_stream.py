"""Answers of any length, in whatever pieces they arrive."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.model.job import INCOMPLETE, cut_note, missing_bytes, without_note
from ray_multicluster_scheduler.ray_api.http_client import MAX_ROW_CHARS, LogEnd, RowParser
from ray_multicluster_scheduler.ray_api.http_errors import MalformedAnswer

TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
ROW = st.dictionaries(TEXT, TEXT | st.integers() | st.lists(st.integers(), max_size=3), max_size=3)


@st.composite
def pieces_of(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> tuple[Any, list[bytes]]:
    """A JSON value, and its text in pieces."""
    value = draw(values)
    raw = json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "replace")
    cuts = sorted(draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    return json.loads(raw), [raw[a:b] for a, b in pairwise([0, *cuts, len(raw)])]


def rows_of(pieces: list[bytes]) -> list[Any]:
    rows = RowParser()
    found = [row for piece in pieces for row in rows.feed(piece)]
    return found + rows.end()


def end_of(pieces: list[bytes], *, keep: int) -> str:
    end = LogEnd(keep)
    for piece in pieces:
        end.feed(piece)
    return end.text()


@given(pieces_of(st.lists(ROW, max_size=5)))
def test_the_rows_of_a_list_are_the_same_in_any_pieces(given_list: tuple[Any, list[bytes]]) -> None:
    value, pieces = given_list
    assert rows_of(pieces) == value


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b"12", b"[1]", b'[{"a": 1} {"b": 2}]', b'[{"a": 1},', b'[{"a": 1}] x', b'["{}"]', b"[,{}]"],
)
def test_what_is_no_list_of_objects_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        rows_of([raw])


def test_a_row_without_end_is_not_collected_for_ever() -> None:
    with pytest.raises(MalformedAnswer, match="too long"):
        rows_of([b'[{"a": "', *[b"x" * 2**16] * (4 * MAX_ROW_CHARS // 2**16)])


@given(pieces_of(st.fixed_dictionaries({"logs": TEXT})), st.integers(0, 40))
def test_the_end_of_a_log_is_the_same_in_any_pieces(log: tuple[Any, list[bytes]], keep: int) -> None:
    value, pieces = log
    whole = (
        value["logs"].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "?")
    )
    shown = end_of(pieces, keep=keep)
    kept = without_note(shown).encode() if missing_bytes(shown) else shown.encode()
    assert whole.encode().endswith(kept)
    assert len(kept) <= keep
    assert missing_bytes(shown) == len(whole.encode()) - len(kept)
    assert len(kept) == len(whole.encode()) or len(kept) > keep - 4


def test_memory_is_bounded_however_long_a_log_is() -> None:
    end = LogEnd(1000)
    end.feed(b'{"logs": "')
    for _ in range(100):
        end.feed(b"x" * 2**16)
        assert len(end._end) <= 3 * 2**16
    end.feed(b'the end"}')
    shown = end.text()
    assert shown.startswith(cut_note(100 * 2**16 + 7 - 1000))
    assert shown.endswith("the end")


def test_a_log_that_breaks_off_says_so_or_is_malformed() -> None:
    end = LogEnd(100)
    end.feed(b'{"logs": "half of')
    assert end.text(complete=False) == f"half of{INCOMPLETE}"
    with pytest.raises(MalformedAnswer):
        end.text()


@pytest.mark.parametrize(
    "raw", [b"[]", b'{"logs": null}', b"<html>", b'{"message": "x"}', b'{"logs": "\\u12']
)
def test_what_is_no_log_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        end_of([raw, b" " * 10], keep=100)
