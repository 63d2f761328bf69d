"""A whole system in one process: fake clusters over loopback HTTP, a real store, the real engine."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.support.waiting import PATIENCE_S, until

from ray_multicluster_scheduler.client.packing import packed
from ray_multicluster_scheduler.client.waiting import raise_if_failed
from ray_multicluster_scheduler.config import Config, Settings
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.model.job import Job
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.api import Service
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.views import JobView
from ray_multicluster_scheduler.testing import FakeRay, ScriptedRunner

#: A busy machine keeps a process from its work for seconds: in a shorter time a good cluster may seem silent,
#: and a scheduler may lose its lease. Whatever tests that gives its own, shorter or longer.
BUSY_S = 60.0
#: Fast enough for tests.
FAST: dict[str, Any] = {
    "probe_interval_s": 0.3,
    "probe_timeout_s": BUSY_S,
    "request_timeout_s": BUSY_S,
    "poll_interval_s": 0.1,
    "retry_delay_s": 0.05,
    "unreachable_after_s": 1.0,
    "lost_after_refused_s": 2.5,
    "lease_ttl_s": BUSY_S,
}


def fake(name: str, cpus: float = 4, **options: Any) -> FakeRay:
    """A cluster on which `sleep`, `echo` and `exit` are played, not run."""
    return FakeRay(name=name, cpus=cpus, **{"runner": ScriptedRunner(), **options})


def every_port(_session_name: str) -> range:
    """The ports of a fake head: it is on this machine, but has no processes that look like those of Ray."""
    return range(1 << 16)


def waited(
    service: Service,
    ids: Sequence[str],
    *,
    timeout_s: float | None = None,
    watch: Callable[[Mapping[str, JobView]], None] = lambda _: None,
) -> None:
    """Wait until all have ended; raises when one of them did not succeed."""
    jobs: Mapping[str, JobView] = {}
    for jobs in service.changes(ids, timeout_s=timeout_s, tick_s=5.0):
        watch(jobs)
    raise_if_failed(service, jobs)


def until_led(scheduler: EmbeddedScheduler) -> None:
    """Wait until somebody leads: from then on who submits waits for the first look at the clusters."""

    def is_led() -> bool:
        scheduler.ensure_scheduled()
        return scheduler.store.leases.current(now=scheduler.clock.now()) is not None

    until(is_led)


class System:
    """`async with System(tmp_path, fake("a"), fake("b")) as system: ...`."""

    def __init__(
        self,
        directory: Path,
        *fakes: FakeRay,
        clusters: dict[str, dict[str, Any]] | None = None,
        crash_point: Callable[[str], None] | None = None,
        head_ports: Callable[[str], Collection[int]] = every_port,
        **settings: Any,
    ) -> None:
        self.directory = directory
        self.ray = {fake.name: fake for fake in fakes}
        self._clusters = clusters or {}
        self._settings = Settings(**{**FAST, **settings})
        self._crash_point = crash_point
        self._head_ports = head_ports
        self._stack = AsyncExitStack()
        self.scheduler: EmbeddedScheduler

    async def __aenter__(self) -> "System":
        for running in self.ray.values():
            await self._stack.enter_async_context(running)
        self.scheduler = self.another_scheduler()
        self.scheduler.start()
        self._stack.push_async_callback(asyncio.to_thread, self.scheduler.stop)
        await asyncio.to_thread(until_led, self.scheduler)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def restart_scheduler(self) -> None:
        """Stop the scheduler and start another one, as after a reboot of its machine."""
        await asyncio.to_thread(self.scheduler.stop)
        self.scheduler = self.another_scheduler()
        self.scheduler.start()
        self._stack.push_async_callback(asyncio.to_thread, self.scheduler.stop)
        await asyncio.to_thread(until_led, self.scheduler)

    def another_scheduler(self, *, clusters: dict[str, dict[str, Any]] | None = None) -> EmbeddedScheduler:
        """A further scheduler on the same store, as another process would have it; not started."""
        options = self._clusters if clusters is None else clusters
        specs = tuple(ray.spec(**options.get(name, {})) for name, ray in self.ray.items())
        config = Config(path=self.directory / "clusters.yaml", clusters=specs, settings=self._settings)
        extra = {} if self._crash_point is None else {"crash_point": self._crash_point}
        return EmbeddedScheduler(
            config,
            directory=self.directory / "state",
            environ=self._environ(),
            head_ports=self._head_ports,
            **extra,
        )

    def _environ(self) -> dict[str, str]:
        return {name: value for ray in self.ray.values() for name, value in ray.environ.items()}

    async def submit(self, entrypoint: str = "sleep 0.1", **request: Any) -> str:
        """Accept one job and return its id."""
        return (await self.submit_many([{"entrypoint": entrypoint, **request}]))[0]

    async def submit_many(self, requests: list[dict[str, Any]]) -> list[str]:
        """Accept jobs in one transaction."""
        packages = self.scheduler.parts.packages
        made = [packed(JobRequest(**{"user": "ann", **request}), packages) for request in requests]
        return [job.submission_id for job in await asyncio.to_thread(self.scheduler.service.submit, made)]

    async def until(self, submission_id: str, *states: JobState) -> Job:
        """Wait until a job is in one of these states."""
        return await asyncio.to_thread(self._until, submission_id, states)

    async def finished(self, *submission_ids: str) -> dict[str, Job]:
        """Wait until these jobs have ended, however they did."""
        return {each: await self.until(each, *_FINAL) for each in submission_ids}

    def story(self, submission_id: str) -> list[str]:
        """The states that a job went through."""
        return [event.new.value for event in self.scheduler.store.history.events(submission_id)]

    def reasons(self, submission_id: str) -> str:
        """All that was written down about a job."""
        return "\n".join(event.reason for event in self.scheduler.store.history.events(submission_id))

    def runs(self, submission_id: str) -> list[str]:
        """The clusters on which this job really ran, in order of their starts."""
        found = [
            (run.start, name)
            for name, ray in self.ray.items()
            for run in ray.runs
            if run.submission_id.split("--r")[0] == submission_id
        ]
        return [name for _, name in sorted(found)]

    def _until(self, submission_id: str, states: tuple[JobState, ...]) -> Job:
        clock, store, mark = self.scheduler.clock, self.scheduler.store, 0
        ends_at = clock.monotonic() + PATIENCE_S
        while (job := store.jobs.get(submission_id)).state not in states:
            self.scheduler.ensure_scheduled()
            left = ends_at - clock.monotonic()
            assert left > 0, f"still {job.state.value}: {self.reasons(submission_id)}"
            mark = store.changes.wait(mark, timeout_s=min(left, 1.0))
        return job


_FINAL = (JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED)
