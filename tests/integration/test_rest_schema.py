"""Whatever is sent to the routes of our own interface, no bug of the server is the answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.support.builders import a_cluster
from tests.support.serving import live

from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.server.app import create_app, routes_alone

#: They wait, by design: tests of their own follow them.
STREAMS = {
    "/api/v1/events/stream",
    "/api/v1/news",
    "/api/v1/jobs/changes",
    "/api/v1/jobs/{submission_id}/logs/tail",
}
SCHEMA = routes_alone().openapi()
LABELS = [
    f"{method.upper()} {path}"
    for path, methods in SCHEMA["paths"].items()
    if path.startswith("/api/v1/") and path not in STREAMS
    for method in methods
]


@pytest.fixture(scope="module")
def operations() -> dict[str, Any]:
    import schemathesis  # it takes a second, which only who runs these tests should wait for

    found = (each.ok() for each in schemathesis.openapi.from_dict(SCHEMA).get_all_operations())
    return {each.label: each for each in found}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("schema")
    # Nobody schedules: what is accepted waits, and no cluster is asked for anything.
    config = Config(path=folder / "clusters.yaml", clusters=(a_cluster(),), settings=Settings())
    scheduler = EmbeddedScheduler(config, directory=folder / "state", environ={})
    with live(create_app(scheduler)) as found:
        yield found
    scheduler.stop()


@pytest.mark.parametrize("label", LABELS)
def test_no_request_finds_a_bug(address: str, operations: dict[str, Any], label: str) -> None:
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

    @settings(max_examples=15, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operations[label].as_strategy())
    def send(case: Any) -> None:
        answer = case.call(base_url=address)
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            assert set(answer.json()) == {"error"}, answer.text
        case.validate_response(answer, checks=[content_type_conformance, response_schema_conformance])

    send()
