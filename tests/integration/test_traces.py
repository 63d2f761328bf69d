"""Traces of jobs, as an exporter and as a collector receive them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.system import System, fake

from ray_multicluster_scheduler.server.metrics import Metrics, watching
from ray_multicluster_scheduler.server.traces import Traces, open_traces

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@asynccontextmanager
async def traced(system: System) -> AsyncIterator[InMemorySpanExporter]:
    kept = InMemorySpanExporter()
    traces = Traces(system.scheduler, SimpleSpanProcessor(kept))
    follower = system.scheduler.follow_moves(traces.export)
    yield kept
    await asyncio.to_thread(follower.close)
    traces.close()


async def test_a_job_is_one_trace_of_its_steps(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        async with traced(system) as kept:
            job = await system.submit("sleep 0.5", metadata={"traceparent": PARENT}, job_id="train")
            await system.finished(job)
        spans = kept.get_finished_spans()

    whole, *steps = spans
    assert [span.name for span in spans] == ["job", "place", "send", "start", "run"]
    assert {f"{span.context.trace_id:032x}" for span in spans} == {PARENT.split("-")[1]}
    assert f"{whole.parent.span_id:016x}" == PARENT.split("-")[2]
    assert {span.parent.span_id for span in steps} == {whole.context.span_id}
    assert whole.attributes == {
        "raymc.submission_id": job,
        "raymc.job_id": "train",
        "raymc.user": "ann",
        "raymc.state": "SUCCEEDED",
    }
    assert steps[-1].attributes == {
        "raymc.submission_id": job,
        "raymc.attempt": 1,
        "raymc.cluster": "a",
    }
    assert whole.start_time == steps[0].start_time
    assert whole.end_time == steps[-1].end_time


async def test_secrets_of_a_job_are_in_no_span(tmp_path: Path) -> None:
    env = {"env_vars": {"API_TOKEN": "s3cr3t-value-of-ann"}}
    async with System(tmp_path, fake("a")) as system:
        async with traced(system) as kept:
            system.ray["a"].fail_starts(words="cannot set up: API_TOKEN=s3cr3t-value-of-ann")
            job = await system.submit("sleep 0.1", runtime_env=env)
            await system.finished(job)
        told = "".join(span.to_json() for span in kept.get_finished_spans())

    assert "cannot set up" in told
    assert "s3cr3t-value-of-ann" not in told


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector for OTLP over HTTP."""
    received: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces"
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()
    thread.join()


async def test_a_collector_receives_them_where_the_environment_names_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    collector: tuple[str, list[ExportTraceServiceRequest]],
) -> None:
    address, received = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our-queue")
    async with (
        System(tmp_path, fake("a")) as system,
        watching(system.scheduler, Metrics(system.scheduler)),
    ):
        await system.finished(await system.submit("sleep 0.1"))

    groups = [group for request in received for group in request.resource_spans]
    names = {
        attribute.value.string_value
        for group in groups
        for attribute in group.resource.attributes
        if attribute.key == "service.name"
    }
    spans = [span.name for group in groups for scope in group.scope_spans for span in scope.spans]
    assert names == {"our-queue"}
    assert spans[:2] == ["job", "place"]


async def test_traces_are_off_unless_somebody_asks_for_them(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a")) as system:
        assert open_traces(system.scheduler, {}) is None
        asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
        assert open_traces(system.scheduler, {**asked, "OTEL_SDK_DISABLED": "true"}) is None
        assert open_traces(system.scheduler, {**asked, "OTEL_TRACES_EXPORTER": "none"}) is None
