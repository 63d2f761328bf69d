"""Clusters are asked what runs there once for many who want to know, and what is secret is hidden."""

from pathlib import Path

import pytest
from tests.support.builders import a_job, a_spec
from tests.support.clock import ManualClock

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.config.load import parse_config
from ray_multicluster_scheduler.environment.redact import REDACTED
from ray_multicluster_scheduler.inspection import clusters as looks
from ray_multicluster_scheduler.inspection.clusters import PROCESSES_FOR_S, ClusterRecords, ProcessLook
from ray_multicluster_scheduler.service.views import ProcessView

SECRET = "not-for-any-screen"
CONFIG = parse_config("clusters:\n  a:\n    head_address: 127.0.0.1:1\n", Path("clusters.yaml"))


class Clusters:
    """Counts how often the clusters are asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def processes(self, _config: Config, _environ: object) -> tuple[list[ProcessView], dict[str, str]]:
        self.asked += 1
        shown = ProcessView(
            cluster="a", kind="job", state="RUNNING", what=f"run --with {SECRET}", why=SECRET, pid=7
        )
        return [shown], {"b": f"https://ann:{SECRET}@b refused"}


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    found = Clusters()
    monkeypatch.setattr(looks, "processes", found.processes)
    return found


def records() -> ClusterRecords:
    return ClusterRecords(live=[a_job(spec=a_spec(runtime_env={"env_vars": {"API_KEY": SECRET}}))])


def test_secrets_of_live_jobs_and_users_in_urls_are_hidden(clusters: Clusters) -> None:
    found = ProcessLook(CONFIG, {}, ManualClock(), records)()

    (item,) = found.items
    assert (item.what, item.why, item.pid) == (f"run --with {REDACTED}", REDACTED, 7)
    assert found.problems == {"b": f"https://{REDACTED}@b refused"}
    assert clusters.asked == 1


def test_many_who_ask_cost_one_look(clusters: Clusters) -> None:
    clock = ManualClock()
    look = ProcessLook(CONFIG, {}, clock, records)
    assert len({id(look()) for _ in range(50)}) == 1
    assert clusters.asked == 1
    clock.advance(PROCESSES_FOR_S)
    look()
    assert clusters.asked == 2
