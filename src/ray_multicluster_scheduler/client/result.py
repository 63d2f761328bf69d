"""The result of a job: `set_result` leaves one, inside the job; `value_of` makes an object of one, outside.

`set_result` needs the standard library only: it also runs where nothing but this package is.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray_multicluster_scheduler.config.installed import how_to_install
from ray_multicluster_scheduler.errors import InvalidRequest, NoResult
from ray_multicluster_scheduler.model.result import (
    BYTES_MARK,
    MAX_RESULT_BYTES,
    RESULT_VAR,
    ResultKind,
    is_url,
    read_content,
)

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.views import ResultView


def set_result(result: object = ..., *, url: str | None = None) -> None:
    """Leave the result of the job that this program is: where it was submitted, `job.result()` returns it.

    Bytes stay bytes, of at most 1 MiB. Everything else is written as JSON, so it comes back as JSON has it: a
    tuple as a list, keys of a dict as texts. Nothing is ever pickled. What is larger is written to a storage
    that both sides reach, and left as `set_result(url="s3://bucket/model.bin")`: `job.result()` reads it
    there, with fsspec.

    Called again, it replaces the former result. It counts when the attempt ends, however it ends; of a job
    that was tried several times, the last attempt's counts. Only the job's own program may call it, not its
    tasks and actors.
    """
    if (result is ...) == (url is None):
        raise InvalidRequest("set_result takes either a result or url=, and one of them")
    path = _own_place()
    content = _content(result) if url is None else _url_content(url)
    half = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        half.write_bytes(content)
        half.replace(path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise InvalidRequest(
            f"the result cannot be written to {path} ({error.strerror or error}): this node has no such "
            "directory of Ray's logs, or the disk is full"
        ) from error


def _own_place() -> Path:
    place = os.environ.get(RESULT_VAR)
    if not place:
        raise InvalidRequest(
            f"set_result belongs into the program of a job: {RESULT_VAR} is not set here. `submit_job` and "
            "`raymc submit` start such a program; outside of one, return the value"
        )
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE:
        raise InvalidRequest(
            "set_result belongs into the program of a job, and this is a task or an actor of it, perhaps on "
            "another node: return the value to the program, and call set_result there"
        )
    return Path(place)


def _content(result: object) -> bytes:
    if isinstance(result, (bytes, bytearray, memoryview)):
        content = bytes(result)
        size, content = len(content), BYTES_MARK + content
    else:
        try:
            content = json.dumps(result, allow_nan=False, ensure_ascii=False).encode("utf-8")
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(
                f"this result, of type {type(result).__name__}, cannot be written as JSON ({error}), and "
                "nothing is pickled: make numbers, texts, lists and dicts of it (`.tolist()`), or bytes"
            ) from error
        size = len(content)
    if size > MAX_RESULT_BYTES:
        raise InvalidRequest(
            f"this result has {size:,} bytes, and {MAX_RESULT_BYTES:,} at most are kept: write it to a "
            'storage that both sides reach, and leave its URL: set_result(url="s3://…")'
        )
    return content


def _url_content(url: str) -> bytes:
    if not isinstance(url, str) or not is_url(url):
        raise InvalidRequest(
            f"url={url!r}: expected a URL that fsspec can open, such as 's3://bucket/model.bin'"
        )
    return url.encode()


def value_of(view: ResultView) -> Any:
    """Return a result as an object; what a URL names is fetched."""
    if view.kind is ResultKind.URL:
        return read_content(fetch(view)).value
    return bytes_of(view) if view.kind is ResultKind.BYTES else view.value


def bytes_of(view: ResultView) -> bytes:
    """Return a result of bytes."""
    return base64.b64decode(view.value)


def fetch(view: ResultView) -> bytes:
    """Return what is behind the URL that is a result."""
    url = str(view.value)
    try:
        import fsspec  # noqa: PLC0415 - optional, and slow

        with fsspec.open(url, "rb") as file:
            content: bytes = file.read()
    except ImportError as error:  # of fsspec, or of what it needs for this kind of URL
        raise InvalidRequest(
            f"the result of job {view.submission_id!r} is at {url}, and what reads that is not installed "
            f"here ({error}): {how_to_install('packages')}, and for a bucket its own library, such as s3fs"
        ) from error
    except Exception as error:  # whatever a storage raises
        raise NoResult(
            view.submission_id, f"its result is at {url}, which cannot be read from here: {error}"
        ) from error
    return content
