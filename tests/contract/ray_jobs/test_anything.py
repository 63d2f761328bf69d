"""Whatever is sent to the paths of Ray's clients: no trouble of the server, but for what clients look for."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy  # noqa: F401 - hypothesis looks at it, perhaps while another thread imports it
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.ray_jobs.gateway import Gateway, a_gateway
from tests.support.system import fake
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler.server.ray_jobs import FIELDS
from ray_multicluster_scheduler.service.request import KEYS

#: Words that Ray's clients look for in an answer of status 500.
LOOKED_FOR = (b"already exists. Please use a different submission_id", b"but it is in a non-terminal state")
EXAMPLES = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

ids = st.one_of(st.sampled_from(["known", "other", "..", "%2e", "a/b"]), st.text(max_size=20))
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
metadata = st.dictionaries(
    st.one_of(st.sampled_from(sorted(KEYS)), st.text(max_size=5)), st.text(max_size=8), max_size=4
)
environments = st.fixed_dictionaries(
    {},
    optional={
        "working_dir": st.one_of(st.text(max_size=10), st.just("gcs://_ray_pkg_0123456789abcdef.zip")),
        "py_modules": st.lists(st.text(max_size=10), max_size=2),
        "env_vars": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
        "pip": values,
    },
)
bodies = st.one_of(
    st.binary(max_size=40),
    values.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(FIELDS, values),
            "entrypoint": st.one_of(st.just("echo hi"), values),
            "submission_id": st.one_of(ids, values),
            "metadata": st.one_of(metadata, values),
            "runtime_env": st.one_of(environments, values),
        },
    ).map(lambda value: json.dumps(value).encode()),
)
paths = st.one_of(
    st.just("/api/jobs/"),
    st.builds(
        lambda name, end: f"/api/jobs/{quote(name, safe='')}{end}",
        ids,
        st.sampled_from(["", "/", "/stop", "/logs", "/logs/tail", "/x"]),
    ),
    st.builds(
        lambda protocol, name: f"/api/packages/{quote(protocol, safe='')}/{quote(name, safe='')}",
        st.one_of(st.just("gcs"), st.text(max_size=5)),
        st.one_of(st.just("_ray_pkg_0123456789abcdef.zip"), st.text(max_size=20)),
    ),
    st.sampled_from(["/api/version", "/api/gcs_healthz", "/api/component_activities", "/api/jobs"]),
)
methods = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])


def send(address: str, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        connection.request(method, path, body=body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


async def check(gateway: Gateway, method: str, path: str, body: bytes) -> None:
    status, answer = await asyncio.to_thread(send, gateway.address, method, path, body)
    assert status < 500 or any(words in answer for words in LOOKED_FOR), (status, answer)
    if status != 200:  # an answer may be a job's log, where Ray names its own files
        assert b"Traceback" not in answer
        assert b".py" not in answer


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with a_gateway(tmp_path, fake("a", 8)) as running:
        await running.system.submit("sleep 1000", submission_id="known")
        yield running


@EXAMPLES
@given(body=bodies)
async def test_any_submission_is_taken_or_refused(gateway: Gateway, body: bytes) -> None:
    await check(gateway, "POST", "/api/jobs/", body)


@EXAMPLES
@given(method=methods, path=paths, body=st.binary(max_size=20))
async def test_any_path_and_method_has_an_answer(
    gateway: Gateway, method: str, path: str, body: bytes
) -> None:
    await check(gateway, method, path, body)
