"""`raymc` in this process against fake clusters that live in a thread of their own."""

import asyncio
import contextlib
import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.raymc import Done, write_config
from tests.support.serving import DOORS, OVER_HTTP, live
from tests.support.system import FAST, fake, until_led
from tests.support.waiting import PATIENCE_S, until

from ray_multicluster_scheduler.cli.main import main
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.server.app import create_app
from ray_multicluster_scheduler.testing import FakeRay

T = TypeVar("T")


class Commands:
    """Runs commands one after the other on one configuration; `fakes` are its clusters by name."""

    def __init__(self, folder: Path, fakes: dict[str, FakeRay], loop: asyncio.AbstractEventLoop) -> None:
        self.folder = folder
        self.fakes = fakes
        self._loop = loop
        self._leader: EmbeddedScheduler | None = None
        self.configure()

    def configure(self, clusters: dict[str, dict[str, Any]] | None = None, **settings: Any) -> None:
        """Write the configuration anew, with changes to some clusters and settings."""
        specs = [ray.spec(**(clusters or {}).get(name, {})) for name, ray in self.fakes.items()]
        self.config = write_config(self.folder, specs, **{**FAST, **settings})
        if self._leader is not None:
            self._leader.reload()

    def lead(self) -> None:
        """Schedule from now on, as a process of its own would."""
        self._leader = EmbeddedScheduler.open(self.config)
        self._leader.start()
        until_led(self._leader)

    def stop_leading(self) -> None:
        """Schedule no longer: nobody does then."""
        if self._leader is not None:
            self._leader.stop()
            self._leader = None

    def run(self, *arguments: str) -> Done:
        """Run one command to its end, with its output in pipes."""
        out, err = io.StringIO(), io.StringIO()
        argv, code = sys.argv, 0
        sys.argv = ["raymc", *arguments]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.argv = argv
        return Done(code=code, out=out.getvalue(), err=err.getvalue())

    def json(self, command: str, *arguments: str) -> Any:
        """Run a command that writes JSON and must succeed."""
        done = self.run(command, "--json", *arguments)
        assert done.code == 0, done.err
        return json.loads(done.out)

    def no_wait(self, *arguments: str) -> str:
        """Submit without waiting and return the id."""
        done = self.run("submit", "--no-wait", *arguments)
        assert done.code == 0, done.err
        return done.out.strip()

    def refused(self, *arguments: str) -> str:
        """Run a command that must be refused, and return what it said: plain, in one line, no traceback."""
        done = self.run(*arguments)
        assert (done.code, done.out) == (2, ""), done
        assert "Traceback" not in done.err
        return " ".join(done.err.replace("│", " ").split())

    @contextlib.contextmanager
    def scheduler(self, *, start: bool = False) -> Iterator[EmbeddedScheduler]:
        """Open the same store as the commands do, as another process would."""
        opened = EmbeddedScheduler.open(self.config)
        try:
            if start:
                opened.start()
            yield opened
        finally:
            opened.stop()

    def job(self, submission_id: str) -> Job:
        """Read a job from the store."""
        with self.scheduler() as opened:
            return opened.store.jobs.get(submission_id)

    def until(self, submission_id: str, state: JobState) -> None:
        """Wait until a job has come to a state: the scheduler acts a moment after the command."""
        now: JobState | None = None
        with self.scheduler() as opened:
            for jobs in opened.service.changes([submission_id], timeout_s=PATIENCE_S, tick_s=1):
                now = jobs[submission_id].state
                if now is state:
                    return
        pytest.fail(f"{submission_id} became {now}, never {state}")

    def use(self, cluster: str, cpus: float) -> None:
        """Let others use this much of a cluster, and wait until the scheduler has seen it."""
        self.in_loop(lambda: self.fakes[cluster].use({"CPU": cpus}))
        with self.scheduler() as opened:
            until(
                lambda: any(
                    seen.name == cluster and (seen.used or {}).get("CPU") == cpus
                    for seen in opened.service.clusters()
                )
            )

    def in_loop(self, change: Callable[[], T]) -> T:
        """Do something to a fake cluster, in its own thread."""

        async def call() -> T:
            return change()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()


def lasts_until(flag: Path) -> str:
    """Return a shell command that ends when there is such a file."""
    return f"for _ in $(seq 2400); do [ -e {flag} ] && break; sleep 0.05; done"


@contextlib.contextmanager
def running_fakes(*fakes: FakeRay) -> Iterator[asyncio.AbstractEventLoop]:
    """Run fake clusters in a thread of their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-clusters")
    thread.start()

    async def each(step: str) -> None:
        for ray in fakes:
            await (ray.__aenter__() if step == "start" else ray.__aexit__())

    try:
        asyncio.run_coroutine_threadsafe(each("start"), loop).result()
        yield loop
        asyncio.run_coroutine_threadsafe(each("stop"), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *fakes: FakeRay, leads: bool = True
) -> Iterator[Commands]:
    """Give a test its own clusters, configuration, home and user, and a scheduler in this process."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RAY_MULTICLUSTER_HOME", str(folder / "home"))
    monkeypatch.setenv("RAY_MULTICLUSTER_USER", "ann")
    monkeypatch.setenv("RAY_MULTICLUSTER_BACKGROUND", "0")
    monkeypatch.delenv("RAY_MULTICLUSTER_CONFIG", raising=False)
    with running_fakes(*fakes) as loop:
        ready = Commands(folder, {ray.name: ray for ray in fakes}, loop)
        try:
            if leads:
                ready.lead()
            yield ready
        finally:
            ready.stop_leading()


@contextlib.contextmanager
def served(raymc: Commands, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the configuration of these commands, and tell them the address."""
    scheduler = EmbeddedScheduler.open(raymc.config)
    scheduler.start()
    try:
        with live(create_app(scheduler)) as address:
            monkeypatch.setenv("RAY_MULTICLUSTER_ADDRESS", address)
            yield address
    finally:
        scheduler.stop()


@pytest.fixture
def raymc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """One fake cluster, `centos` with 4 CPUs, and the commands on it."""
    with commands(tmp_path, monkeypatch, fake("centos", 4)) as ready:
        yield ready


#: What cannot be the same where a server schedules, and why.
ONLY_IN_PROCESS = {
    "test_a_store_that_cannot_be_read_is_named": "a server's store is not its clients' to name",
    "test_ctrl_c_before_the_job_is_accepted_leaves_an_older_one_of_that_id_alone": "it interrupts the store",
}


@pytest.fixture(params=DOORS)
def raymc_both_ways(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Commands]:
    """The same, in process and over HTTP. Import it `as raymc`."""
    if request.param == OVER_HTTP and request.node.originalname in ONLY_IN_PROCESS:
        pytest.skip(ONLY_IN_PROCESS[request.node.originalname])
    leads = request.param != OVER_HTTP
    with (
        commands(tmp_path, monkeypatch, fake("centos", 4), leads=leads) as ready,
        contextlib.ExitStack() as stack,
    ):
        if request.param == OVER_HTTP:
            stack.enter_context(served(ready, monkeypatch))
        yield ready


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """Two fake clusters, `centos` with 4 CPUs and `mac` with 2. Which is seen first is left to chance."""
    with commands(tmp_path, monkeypatch, fake("centos", 4), fake("mac", 2)) as ready:
        yield ready
