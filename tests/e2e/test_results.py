"""Results of jobs on two real clusters, with nothing but what Ray's dashboards show."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler import initialize_scheduler_environment, submit_jobs
from ray_multicluster_scheduler.local import Sandbox

pytestmark = pytest.mark.ray

PLACE = "$RAY_MULTICLUSTER_RESULT"
CONTENT = bytes(range(256)) * 600  # of several blocks of Ray's log files
PROGRAM = """
import ray
from ray_multicluster_scheduler import set_result

@ray.remote
def task():
    try:
        set_result("of a task")
    except ValueError as error:
        return str(error)

ray.init(log_to_driver=False)
set_result(ray.get(task.remote()).split(":")[0])
"""


@pytest.fixture
def _scheduler(tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(tmp_path / "home"))
    scheduler = initialize_scheduler_environment(sandbox.config_path)
    yield
    scheduler.stop()


@pytest.mark.usefixtures("_scheduler")
def test_results_come_back_from_two_clusters(tmp_path: Path) -> None:
    (tmp_path / "content").write_bytes(CONTENT)
    (tmp_path / "program.py").write_text(PROGRAM)
    again = "[ $RAY_MULTICLUSTER_ATTEMPT = 2 ]"
    commands = {
        "json": f"echo '{{\"on\": \"'$RAY_MULTICLUSTER_CLUSTER'\"}}' > {PLACE}",
        "bytes": f"cp {tmp_path}/content {PLACE}",
        "again": f"echo $RAY_MULTICLUSTER_ATTEMPT > {PLACE}; {again}",
        "program": f"python {tmp_path}/program.py",
    }
    where = [("json", "centos"), ("json", "mac"), ("bytes", "mac"), ("again", "centos"), ("program", "mac")]
    jobs = submit_jobs(
        [
            {"entrypoint": commands[what], "only_cluster": cluster, "max_retries": 1, "job_id": what}
            for what, cluster in where
        ]
    )
    found = [job.result(PATIENCE_S) for job in jobs]
    in_a_task = (
        "set_result belongs into the program of a job, and this is a task or an actor of it, perhaps on "
    )
    assert found == [{"on": "centos"}, {"on": "mac"}, CONTENT, 2, f"{in_a_task}another node"]
    assert "raymc-result" not in jobs[0].logs()
