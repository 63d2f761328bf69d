"""What `raymc info` says of a job."""

from io import StringIO

import pytest
from rich.console import Console
from tests.support.builders import NOW, a_job

from ray_multicluster_scheduler.cli.commands.job import show_job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.make_views import show_detail


@pytest.mark.parametrize("unreported", [True, False])
def test_an_end_that_was_only_noticed_is_told_as_such(unreported: bool) -> None:
    job = a_job(
        state=JobState.SUCCEEDED, started_at=NOW - 40, ended_at=NOW, changed_at=NOW, end_unreported=unreported
    )
    said = StringIO()
    show_job(Console(file=said, width=200), show_detail(job, (), None, (), cluster_envs={}))
    (line,) = [line for line in said.getvalue().splitlines() if line.startswith("ended")]
    assert "2023-11-14T22:13:20Z" in line
    assert ("seen then" in line) == unreported
    assert "40.0s" in said.getvalue()
