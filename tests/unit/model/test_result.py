"""What a file that a job has left is taken for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_multicluster_scheduler.model.result import BYTES_MARK, ResultKind, read_content, read_result

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_json_comes_back(value: object) -> None:
    found = read_content(json.dumps(value).encode())
    assert (found.kind, found.value) == (ResultKind.JSON, value)


@given(st.binary())
def test_marked_bytes_stay_bytes_whatever_they_look_like(content: bytes) -> None:
    found = read_result(BYTES_MARK + content)
    assert (found.kind, found.value, found.size_bytes) == (ResultKind.BYTES, content, len(content))


@given(st.binary())
def test_every_file_is_something(content: bytes) -> None:
    assert read_result(content).size_bytes == len(content) - (
        len(BYTES_MARK) if content.startswith(BYTES_MARK) else 0
    )


@pytest.mark.parametrize(
    "text", ["s3://bucket/a.bin", "file:///shared/a", "gs://b/c?d=e#f\n", "HTTPS://x.y/z"]
)
def test_one_url_is_a_url(text: str) -> None:
    found = read_result(text.encode())
    assert (found.kind, found.value) == (ResultKind.URL, text.strip())


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"hello\n", b"\xff\xfe", b"NaN", b"[1, Infinity]", b"1e999", b"1" * 5000),
        *(b"[" * 5000, b"[" * 200 + b"]" * 200, b"s3://a and more", b"s3://a\ns3://b"),
    ],
)
def test_what_is_neither_json_nor_a_url_is_bytes(content: bytes) -> None:
    assert read_result(content).kind is ResultKind.BYTES
    assert read_result(content).value == content


def test_a_text_that_looks_like_a_url_stays_a_text_in_json() -> None:
    assert read_result(b'"s3://bucket/a"').kind is ResultKind.JSON
