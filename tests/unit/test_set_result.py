"""`set_result`: what a program of a job may leave, and what it is told otherwise."""

import base64
import sys
from pathlib import Path

import pytest

from ray_multicluster_scheduler import set_result
from ray_multicluster_scheduler.client.result import value_of
from ray_multicluster_scheduler.errors import InvalidRequest, NoResult
from ray_multicluster_scheduler.model.result import MAX_RESULT_BYTES, RESULT_VAR, ResultKind, read_result
from ray_multicluster_scheduler.service.views import ResultView


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(RESULT_VAR, str(tmp_path / "result"))
    return tmp_path / "result"


def read(place: Path) -> object:
    """Return what the other side makes of the file."""
    found = read_result(place.read_bytes())
    value = base64.b64encode(found.value).decode() if found.kind is ResultKind.BYTES else found.value
    return value_of(
        ResultView(submission_id="job", attempt=1, kind=found.kind, value=value, size_bytes=found.size_bytes)
    )


TEXTS = (None, 0, "", "s3://a/b", {"é": [1.5, None]})
BYTES = (b"", b"123", b"s3://a/b", b"\0")


@pytest.mark.parametrize("result", [*TEXTS, *BYTES])
def test_what_is_left_comes_back(place: Path, result: object) -> None:
    set_result("before")
    set_result(result)
    assert read(place) == result
    assert [each.name for each in place.parent.iterdir()] == ["result"]


def test_a_url_is_fetched_where_the_result_is_asked_for(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    large = bytes(range(256)) * 10_000
    (tmp_path / "large").write_bytes(large)
    set_result(url=f"file://{tmp_path}/large")
    assert read(place) == large
    (tmp_path / "large").write_text('{"a": 1}')
    assert read(place) == {"a": 1}
    (tmp_path / "large").unlink()
    with pytest.raises(NoResult, match="cannot be read from here"):
        read(place)


def test_a_url_of_an_unknown_kind_is_told(place: Path) -> None:
    pytest.importorskip("fsspec")
    set_result(url="nosuchstorage://bucket/key")
    with pytest.raises(NoResult, match="nosuchstorage"):
        read(place)


def test_without_fsspec_it_says_what_to_install(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_result(url="s3://bucket/key")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InvalidRequest, match=r"pip install .*packages.*s3fs"):
        read(place)


@pytest.mark.parametrize("result", [object(), {1, 2}, float("nan"), {"a": [b"x"]}, {(1, 2): 3}])
def test_nothing_is_pickled(place: Path, result: object) -> None:
    set_result("before")
    with pytest.raises(InvalidRequest, match="nothing is pickled"):
        set_result(result)
    assert read(place) == "before"


@pytest.mark.parametrize("result", [b"x" * (MAX_RESULT_BYTES + 1), "x" * MAX_RESULT_BYTES])
def test_what_is_too_large_is_refused_with_the_way_out(place: Path, result: object) -> None:
    with pytest.raises(InvalidRequest, match=r"1,048,576 at most.*set_result\(url="):
        set_result(result)
    assert not place.exists()
    set_result(b"x" * MAX_RESULT_BYTES)
    assert read(place) == b"x" * MAX_RESULT_BYTES


def test_outside_of_a_job_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RESULT_VAR, raising=False)
    with pytest.raises(InvalidRequest, match="belongs into the program of a job"):
        set_result(1)


def test_a_directory_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RESULT_VAR, str(tmp_path / "gone" / "result"))
    with pytest.raises(InvalidRequest, match=r"gone/result.*No such file"):
        set_result(1)


@pytest.mark.parametrize(
    "words", [{}, {"result": 1, "url": "s3://a/b"}, {"url": "bucket/key"}, {"url": "s3://a b"}]
)
def test_a_call_that_makes_no_sense_is_refused(place: Path, words: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        set_result(**words)  # type: ignore[arg-type]
    assert not place.exists()
