"""A look that fails is an error for whoever waits for it, not a wait for ever; the next one begins anew."""

from pathlib import Path

import pytest
from tests.support.builders import a_cluster

from ray_multicluster_scheduler.clock import SystemClock
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.tasks.cluster_selector import ClusterObserver


@pytest.fixture
def observer() -> ClusterObserver:
    nobody = a_cluster("a", dashboard="http://127.0.0.1:9")
    return ClusterObserver(
        Config(path=Path("clusters.yaml"), clusters=(nobody,), settings=Settings()), {}, SystemClock()
    )


async def _breaks(_watch: ClusterWatch) -> None:
    raise OverflowError("an answer that nobody expected")


def test_a_look_that_fails_is_told_and_the_next_question_begins_anew(
    observer: ClusterObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ClusterWatch, "step", _breaks)
        with pytest.raises(SchedulerError, match="an answer that nobody expected"):
            observer.snapshots()
    assert set(observer.snapshots()) == {"a"}
    observer.close()


def test_one_that_has_ended_by_itself_can_be_closed(
    observer: ClusterObserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ClusterWatch, "step", _breaks)
        with pytest.raises(SchedulerError):
            observer.snapshots()
    observer.close()
    observer.close()
