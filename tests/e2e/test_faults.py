"""Real Ray heads lose their parts while a job runs: it ends well, is never lost and never runs twice at once.

The job keeps its own journal in a file outside. `lost_after_refused_s` is short where a test kills all of a
head at once; where a raylet outlives its GCS, it is longer than the 60 s for which Ray lets it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.cable import Cable
from tests.support.waiting import until

from ray_multicluster_scheduler.config import Settings, load_config
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.local import HeadSpec, Sandbox
from ray_multicluster_scheduler.local.head import find
from ray_multicluster_scheduler.local.spec import HeadState
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.request import JobRequest

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

MEASURING_JOB = Path(__file__).with_name("measuring_job.py")
#: So long a raylet looks for its GCS before it gives up, and its jobs with it.
OUTLIVES_GCS_S = 60
SETTINGS: dict[str, Any] = {
    "probe_interval_s": 1.0,
    "poll_interval_s": 0.5,
    "retry_delay_s": 0.5,
    "unreachable_after_s": 3.0,
    "lost_after_refused_s": 10.0,
}
#: The first attempt of a job that is to be interrupted, and the next one.
LONG_THEN_SHORT = (600, 1)
#: When a raylet is gone, Ray's helper for a job kills the shell that it started, and leaves the shell's child
#: behind. With this the program takes the shell's place and dies with the helper: docs/failures.md.
SHARES_FATE = "exec "
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two heads that only this module breaks, and repairs."""
    with Sandbox(
        tmp_path_factory.mktemp("faults"), [HeadSpec(name=name, cpus=2) for name in "ab"]
    ) as sandbox:
        yield sandbox


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a job's own journal."""

    what: str
    attempt: int
    at: float


class Story:
    """One job: what the scheduler says of it, and what it says itself."""

    def __init__(self, scheduler: EmbeddedScheduler, journal: Path, job_id: str) -> None:
        self._scheduler = scheduler
        self._journal = journal
        self._job_id = job_id

    @property
    def job(self) -> Job:
        return self._scheduler.store.jobs.get(self._job_id)

    @property
    def told(self) -> str:
        """All reasons, as a user reads them."""
        return "\n".join(event.reason for event in self._scheduler.store.history.events(self._job_id))

    @property
    def outcomes(self) -> list[str | None]:
        return [attempt.outcome for attempt in self._scheduler.store.history.attempts(self._job_id)]

    def lines(self, what: str) -> list[Line]:
        """What the job wrote itself."""
        text = self._journal.read_text() if self._journal.exists() else ""
        fields = [line.split() for line in text.splitlines()]
        return [Line(f[0], int(f[2]), float(f[3])) for f in fields if f[:2] == [what, self._job_id]]

    def last_sign(self, attempt: int) -> float:
        """When an attempt was last alive, by its own words."""
        return max(line.at for line in self.lines("alive") if line.attempt == attempt)

    def wait(self, holds: Callable[[], object]) -> None:
        """Wait until something holds."""

        def is_so() -> object:
            self._scheduler.ensure_scheduled()
            return holds()

        until(is_so, told=lambda: f"{self.job.state.value}: {self.told}")

    def until(self, state: JobState) -> Job:
        """Wait until the job is in this state."""
        self.wait(lambda: self.job.state is state)
        return self.job

    def until_it_runs(self) -> None:
        """Wait until the scheduler and the job itself say that it runs."""
        self.until(JobState.RUNNING)
        self.wait(lambda: self.lines("alive"))

    def check(self, *, starts: int, overlap: bool = False) -> None:
        """The job is done: started so often, one start after the other, and ended once."""
        assert self.job.state is JobState.SUCCEEDED, self.told
        started = self.lines("start")
        assert [line.attempt for line in started] == list(range(1, starts + 1)), self.told
        assert [line.attempt for line in self.lines("end")] == [starts]
        beside = [self.last_sign(earlier.attempt) > later.at for earlier, later in pairwise(started)]
        assert any(beside) == overlap, started


Submit = Callable[..., Story]


@contextmanager
def a_scheduler(
    pair: Sandbox, tmp_path: Path, *, addresses: dict[str, str] | None = None, **settings: Any
) -> Iterator[Submit]:
    """Repair what the test before has broken; yield what submits a measuring job to a new scheduler."""
    for name in pair.heads:
        if pair.state_of(name) is not HeadState.RUNNING or "raylet" not in pair.pids(name):
            pair.kill(name)
            pair.start(name)
    config = load_config(pair.config_path)
    first, *others = config.clusters
    clusters = (replace(first, **addresses or {}), *others)
    config = replace(config, clusters=clusters, settings=Settings(**{**SETTINGS, **settings}))
    scheduler = EmbeddedScheduler(config, directory=tmp_path / "state", environ={})
    scheduler.start()

    def submit(seconds: Sequence[float], *, prefix: str = "", **request: Any) -> Story:
        command = [sys.executable, str(MEASURING_JOB), str(tmp_path / "journal"), *map(str, seconds)]
        entrypoint = prefix + " ".join(command)
        asked = JobRequest(entrypoint=entrypoint, user="ann", preferred_cluster="a", **request)
        (job,) = scheduler.service.submit([asked])
        return Story(scheduler, tmp_path / "journal", job.submission_id)

    try:
        yield submit
    finally:
        scheduler.stop()


def send(pair: Sandbox, number: signal.Signals, role: str) -> None:
    """Send a signal to the part of head 'a' that plays this role."""
    (pid,) = pair.pids("a")[role]
    os.kill(pid, number)


def test_dashboard_frozen_during_a_submit_and_thawed_later(pair: Sandbox, tmp_path: Path) -> None:
    with a_scheduler(pair, tmp_path, probe_interval_s=600.0, request_timeout_s=3.0) as submit:
        submit([0.1]).until(JobState.SUCCEEDED)  # 'a' is known to be well, and is not asked again
        send(pair, signal.SIGSTOP, "dashboard")
        try:
            story = submit([1])
            story.until(JobState.UNREACHABLE)
            assert not story.lines("start")
        finally:
            send(pair, signal.SIGCONT, "dashboard")
        job = story.until(JobState.SUCCEEDED)
        story.check(starts=1)
        assert (job.cluster, job.attempt) == ("a", 1)
        assert "no word from cluster 'a'" in story.told


def test_worker_of_the_job_killed(pair: Sandbox, tmp_path: Path) -> None:
    with a_scheduler(pair, tmp_path) as submit:
        story = submit(LONG_THEN_SHORT)
        story.until_it_runs()
        (supervisor,) = [p.pid for p in find(pair.heads["a"].mark) if "JobSupervisor" in p.command]
        os.kill(supervisor, signal.SIGKILL)
        job = story.until(JobState.SUCCEEDED)
        story.check(starts=2)
        assert (job.infra_failures, job.user_failures, story.outcomes[0]) == (1, 0, "SUPERVISOR")


@pytest.mark.parametrize("addresses", [{}, {"head_address": "127.0.0.1:9"}], ids=["", "client-port-closed"])
def test_only_the_dashboard_killed_and_brought_back(
    pair: Sandbox, tmp_path: Path, addresses: dict[str, str]
) -> None:
    with a_scheduler(pair, tmp_path, addresses=addresses) as submit:
        story = submit([20])
        story.until_it_runs()
        start_again = how_it_was_started(pair, "dashboard")
        send(pair, signal.SIGKILL, "dashboard")
        story.until(JobState.UNREACHABLE)
        story.wait(lambda: story.lines("end"))  # for longer than lost_after_refused_s
        assert story.job.state is JobState.UNREACHABLE  # the head does not refuse, or always did: no evidence
        start_again()
        job = story.until(JobState.SUCCEEDED)
        story.check(starts=1)
        assert (job.cluster, job.attempt) == ("a", 1)


def how_it_was_started(pair: Sandbox, role: str) -> Callable[[], object]:
    """Return what starts a part of head 'a' once more, just as it was."""
    (pid,) = pair.pids("a")[role]
    entry = Path("/proc", str(pid))
    command = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    variables = [item for item in (entry / "environ").read_bytes().split(b"\0") if b"=" in item]
    environ = dict(item.split(b"=", 1) for item in variables)
    nowhere = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    return lambda: subprocess.run(["setsid", "--fork", *command], env=environ, check=True, **nowhere)


def test_only_the_raylet_killed(pair: Sandbox, tmp_path: Path) -> None:
    with a_scheduler(pair, tmp_path) as submit:
        story = submit(LONG_THEN_SHORT, prefix=SHARES_FATE)
        story.until_it_runs()
        send(pair, signal.SIGKILL, "raylet")
        job = story.until(JobState.SUCCEEDED)
        story.check(starts=2)
        assert job.cluster == "b"
        assert "the node of its driver on cluster 'a' is dead" in story.told


def test_head_restarted(pair: Sandbox, tmp_path: Path) -> None:
    with a_scheduler(pair, tmp_path, lost_after_refused_s=3600.0) as submit:
        story = submit(LONG_THEN_SHORT)
        story.until_it_runs()
        pair.kill("a")
        pair.start("a")
        story.until(JobState.SUCCEEDED)
        story.check(starts=2)
        assert "the head of cluster 'a' was restarted (new session)" in story.told


def test_head_killed(pair: Sandbox, tmp_path: Path) -> None:
    with a_scheduler(pair, tmp_path) as submit:
        story = submit(LONG_THEN_SHORT)
        story.until_it_runs()
        pair.kill("a")
        job = story.until(JobState.SUCCEEDED)
        story.check(starts=2)
        assert job.cluster == "b"
        assert "its dashboard and its head address have both refused connections" in story.told


@pytest.mark.parametrize("on_unreachable", [3600.0, 6.0])
def test_network_cut_for_a_while(pair: Sandbox, tmp_path: Path, on_unreachable: float) -> None:
    rerun = on_unreachable == 6.0
    with (
        Cable(pair.heads["a"].dashboard.removeprefix("http://")) as cable,
        a_scheduler(pair, tmp_path, addresses={"dashboard": f"http://{cable.address}"}) as submit,
    ):
        story = submit(LONG_THEN_SHORT if rerun else [20], on_unreachable=on_unreachable)
        story.until_it_runs()
        cable.cut()
        story.until(JobState.UNREACHABLE)
        if rerun:
            story.until(JobState.SUCCEEDED)
        cable.mend()
        story.until(JobState.SUCCEEDED)
        if rerun:
            story.wait(lambda: "SUPERSEDED" in story.outcomes)
            story.wait(lambda: time.time() - story.last_sign(attempt=1) > 5)
            assert "so the two may overlap" in story.told
            assert "was found alive on 'a' after it was given up" in story.told
        story.check(starts=2 if rerun else 1, overlap=rerun)


def test_tunnel_of_both_addresses_ended_and_begun_again(pair: Sandbox, tmp_path: Path) -> None:
    head = pair.heads["a"]
    with Cable(head.dashboard.removeprefix("http://")) as one, Cable(head.client_address) as other:
        addresses = {"dashboard": f"http://{one.address}", "head_address": other.address}
        with a_scheduler(pair, tmp_path, addresses=addresses) as submit:
            story = submit([20])
            story.until_it_runs()
            one.close()
            other.close()
            story.until(JobState.UNREACHABLE)
            story.wait(lambda: story.lines("end"))  # for longer than lost_after_refused_s
            assert story.job.state is JobState.UNREACHABLE
            one.listen()
            job = story.until(JobState.SUCCEEDED)
            story.check(starts=1)
            assert (job.cluster, job.attempt) == ("a", 1)


@pytest.mark.slow
def test_only_the_gcs_killed(pair: Sandbox, tmp_path: Path) -> None:
    with a_scheduler(pair, tmp_path, lost_after_refused_s=OUTLIVES_GCS_S + 5.0) as submit:
        story = submit(LONG_THEN_SHORT, prefix=SHARES_FATE)
        story.until_it_runs()
        send(pair, signal.SIGKILL, "gcs_server")
        killed_at = time.time()
        story.until(JobState.UNREACHABLE)
        story.until(JobState.SUCCEEDED)
        story.check(starts=2)
        assert story.last_sign(attempt=1) > killed_at + OUTLIVES_GCS_S / 2  # a hasty failover would overlap
        assert "have both refused connections" in story.told
