"""`raymc doctor`: what is wrong with each cluster of a configuration, and what to do about it.

A trial goes further: it runs a short job on the cluster, as any job would run there. The job is sent to the
cluster directly, without the queue, and is removed from it afterwards.
"""

from __future__ import annotations

import asyncio
import inspect
import platform
import shlex
import socket
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from ray_multicluster_scheduler.asyncio_tools import together, within
from ray_multicluster_scheduler.clock import jitter
from ray_multicluster_scheduler.cluster_health import trial_program
from ray_multicluster_scheduler.cluster_health.diagnosis import (
    REMOVE_CHECKOUT,
    Check,
    Evidence,
    Verdict,
    Versions,
    diagnose,
)
from ray_multicluster_scheduler.cluster_health.tcp_port import head_ports_here, head_state
from ray_multicluster_scheduler.cluster_health.watch import ClusterWatch
from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.config.installed import ray_version
from ray_multicluster_scheduler.core.lifecycle.attempt_request import compose_submit
from ray_multicluster_scheduler.engine.send import pack
from ray_multicluster_scheduler.environment.redact import redact_text, secrets_of
from ray_multicluster_scheduler.environment.setup_failure import MAX_CHARS
from ray_multicluster_scheduler.errors import ClusterBadAnswer, ClusterError, ClusterTimeout, SchedulerError
from ray_multicluster_scheduler.executors.ray_jobs import RayJobsExecutor
from ray_multicluster_scheduler.model.cluster import TRIAL_S, ClusterSpec
from ray_multicluster_scheduler.model.execution import AttemptStatus, FailureKind, Sighting, StartRequest
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.packages.runtime_env import local_path, localise
from ray_multicluster_scheduler.packages.store import PackageStore
from ray_multicluster_scheduler.packages.to_cluster import OwnPackage, Uploader, with_own_package
from ray_multicluster_scheduler.ports import Clock, ClusterProbe
from ray_multicluster_scheduler.ray_api.http_connection import HttpConnection, open_connection
from ray_multicluster_scheduler.version import VERSION

RUN = "run"
MOST_SKEW_S = 5.0
LEAST_FREE = GIB
#: The checks that must not have found a problem before a job is sent.
_NEEDED = frozenset({"dashboard", "token", "nodes and jobs", "environment"})
_ONE_PYTHON = "Ray lets no program call ray.init() with another one than that of its head"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the program printed: the fields of `trial_program`."""

    host: str
    #: The active conda environment, if the program ran with its Python; else empty.
    conda: str
    #: `sys.prefix`.
    prefix: str
    executable: str
    python: str
    ray: str | None
    home_dir: str | None
    home_dir_exists: bool
    #: How many entries PYTHONPATH has, and those that do not exist on the node.
    search_path: int
    not_there: tuple[str, ...]
    temp_dir: str
    temp_free: int
    #: The URI of the package that the job carried.
    carried: str | None
    #: The file of the package of our name that was imported, or that could not be imported.
    package: str | None
    package_version: str | None = None
    package_problem: str = ""
    #: Seconds since the epoch by the clock of the node.
    clock: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A short job that has printed what it found."""

    found: Found
    #: From its submission until it had ended.
    took_s: float
    #: The node read its clock between these times by ours.
    after: float
    before: float


def entrypoint() -> str:
    """Return the entrypoint of the job: its program is the text of `trial_program`."""
    return f"python -c {shlex.quote(inspect.getsource(trial_program))}"


def found_in(log: str) -> Found | None:
    """Return what the program printed into the job's log; None: nothing that can be read."""
    lines = [line for line in log.splitlines() if line.startswith(f"{trial_program.MARK}{{")]
    try:
        return TypeAdapter(Found).validate_json(lines[-1].removeprefix(trial_program.MARK))
    except (IndexError, ValidationError):
        return None


def diagnose_trial(evidence: Evidence, trial: Trial) -> tuple[Check, ...]:
    """Return one verdict per check of what the job found."""
    says = f"a short job ended on {trial.found.host} {trial.took_s:.1f} s after its submission"
    found = (check(evidence, trial, trial.found) for check in _CHECKS)
    return Check(name=RUN, verdict=Verdict.OK, says=says), *(check for check in found if check is not None)


def no_result(problem: str, advice: str = "") -> Check:
    """Return the only line of a job that printed nothing."""
    return Check(name=RUN, verdict=Verdict.PROBLEM, says=problem, advice=advice)


def late(remote_id: str, seen: Sighting | None, timeout_s: float) -> Check:
    """Return the line of a job that had not ended in time, and is being stopped."""
    if seen is not None and seen.status is AttemptStatus.RUNNING:
        says = f"it has run, but not ended, after {timeout_s:g} s"
        advice = "its node may be overloaded, or to import the package there takes for ever"
    else:
        says = f"its environment is not ready, or no node has room, after {timeout_s:g} s"
        advice = "if conda or pip has to build the environment, give it more time with --timeout"
    return no_result(f"the short job {remote_id} was stopped: {says}", f"{advice}; see `ray status` there")


def failed(seen: Sighting, log: str) -> Check:
    """Return the line of a job that ended without a result, in Ray's own words."""
    if seen.failure in {FailureKind.ENVIRONMENT, FailureKind.NO_ENVIRONMENT}:
        return no_result(
            f"the environment of a job cannot be set up: {seen.message}",
            "for conda by name, `conda env list` on every node of the cluster tells",
        )
    last = [line.strip() for line in log.splitlines() if line.strip()][-1:] or [seen.message]
    return no_result(
        f"a short job ended without a result ({seen.status.value}): {last[0][-MAX_CHARS:]}",
        "it starts with `python`, as most entrypoints do: PATH on the nodes decides which one that is",
    )


def can_run(checks: Iterable[Check]) -> bool:
    """Tell whether a job can be sent at all, by the other checks of a cluster."""
    return not any(check.name in _NEEDED and check.verdict is Verdict.PROBLEM for check in checks)


def not_run() -> Check:
    """Return the line of a cluster that no job can be sent to."""
    return Check(name=RUN, verdict=Verdict.SKIPPED, says="not run: solve the problems above first")


def _conda(evidence: Evidence, _: Trial, found: Found) -> Check:
    wanted = evidence.spec.runtime_env.get("conda")
    says = f"{found.conda or 'none'}, sys.prefix is {found.prefix}"
    if isinstance(wanted, str) and wanted not in {
        found.conda,
        found.prefix,
        PurePosixPath(found.prefix).name,
    }:
        return _check(
            "conda",
            Verdict.PROBLEM,
            f"{wanted!r} is configured, but `python` is {found.executable}",
            "PATH decides which `python` an entrypoint starts: look at env_vars of this cluster",
        )
    return _check("conda", Verdict.OK, says)


def _python(evidence: Evidence, _: Trial, found: Found) -> Check:
    says, head = f"{found.python}, {found.executable}", evidence.snapshot.python_version
    if head is None or head == found.python:
        return _check("Python", Verdict.OK, says)
    same_minor = head.split(".")[:2] == found.python.split(".")[:2]
    advice = f"{_ONE_PYTHON}: make the environment with Python {head}"
    if same_minor:
        advice += ", or set RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL=minor in env_vars (newer Ray only)"
    verdict = Verdict.NOTE if same_minor else Verdict.PROBLEM
    return _check("Python", verdict, f"{says}; the head runs {head}", advice)


def _ray(evidence: Evidence, _: Trial, found: Found) -> Check:
    head = evidence.snapshot.ray_version
    if found.ray is None:
        return _check("Ray", Verdict.NOTE, f"not installed for {found.executable}")
    if head in {None, found.ray}:
        return _check("Ray", Verdict.OK, found.ray)
    return _check(
        "Ray",
        Verdict.PROBLEM,
        f"{found.ray}; the head runs {head}",
        f"{_ONE_PYTHON}: install ray[default]=={head} into this environment",
    )


def _home_dir(evidence: Evidence, _: Trial, found: Found) -> Check | None:
    if found.home_dir is None:
        return None
    if found.home_dir_exists:
        return _check("home_dir", Verdict.OK, found.home_dir)
    says = f"{found.home_dir!r} does not exist on {found.host}"
    return _check("home_dir", Verdict.NOTE, says, f"correct it for cluster {evidence.spec.name!r}")


def _search_path(_: Evidence, __: Trial, found: Found) -> Check | None:
    if not found.search_path:
        return None
    if not found.not_there:
        return _check("PYTHONPATH", Verdict.OK, f"all of its {found.search_path} entries exist")
    says = f"on {found.host} these do not exist: {', '.join(found.not_there)}"
    return _check("PYTHONPATH", Verdict.NOTE, says, "correct or remove them in env_vars of this cluster")


def _this_package(evidence: Evidence, _: Trial, found: Found) -> Check:
    """Compare the package that was imported with the one that the job carried."""
    version, where, carried = found.package_version or "of unknown version", found.package, found.carried
    says = f"ray_multicluster_scheduler {version} from {where}"
    if where is None:
        if carried is None:
            return _check("this package", Verdict.OK, "none: jobs carry none here, and none is installed")
        says = "the job carried it, but it cannot be imported"
    elif found.package_problem:
        says = f"{where} cannot be imported: {found.package_problem}"
    elif carried is None:
        if version == VERSION:
            return _check("this package", Verdict.OK, f"{says}; jobs carry none here")
        says += f", and {VERSION} here"
    elif PurePosixPath(carried).stem in PurePosixPath(where).parts:
        return _check("this package", Verdict.OK, f"{says}, which the job carried")
    else:
        says += ", not the one that the job carried"
    advice = "set `ship_package: true`, or install this version there"
    if evidence.spec.ship_package:
        advice = f"if it is a line of PYTHONPATH, {REMOVE_CHECKOUT}"
    return _check("this package", Verdict.PROBLEM, says, advice)


def _clock(_: Evidence, trial: Trial, found: Found) -> Check:
    behind, ahead = trial.after - found.clock, found.clock - trial.before
    if max(behind, ahead) <= MOST_SKEW_S:
        apart = max(abs(behind), abs(ahead))
        return _check("clock", Verdict.OK, f"at most {apart:.1f} s apart from ours")
    says = f"at least {max(behind, ahead):.0f} s {'behind' if behind > ahead else 'ahead of'} ours"
    return _check("clock", Verdict.NOTE, says, f"set the clock of {found.host}, or ours, with NTP")


def _disk(_: Evidence, __: Trial, found: Found) -> Check:
    says = f"{found.temp_free / GIB:.1f} GiB free in {found.temp_dir}"
    if found.temp_free >= LEAST_FREE:
        return _check("disk", Verdict.OK, says)
    advice = f"environments and logs need room: free some on {found.host}"
    return _check("disk", Verdict.PROBLEM, says, advice)


def _check(name: str, verdict: Verdict, says: str, advice: str = "") -> Check:
    return Check(name=f"{RUN}: {name}", verdict=verdict, says=says, advice=advice)


_CHECKS: tuple[Callable[[Evidence, Trial, Found], Check | None], ...] = (
    _conda,
    _python,
    _ray,
    _home_dir,
    _search_path,
    _this_package,
    _clock,
    _disk,
)


# Collects the evidence for `diagnosis.py`: addresses, ports and answers of one cluster, concurrently.
#
# The Ray Client port gets a TCP connection only: a session would start a process on the cluster.


T = TypeVar("T")


async def examine(
    spec: ClusterSpec,
    *,
    probe: ClusterProbe,
    anonymous: ClusterProbe,
    watch: ClusterWatch,
    token_set: bool,
    ours: Versions,
    timeout_s: float,
    lost_after_s: float,
    folder: Path,
) -> Evidence:
    """Collect the evidence about one cluster, in about `timeout_s` at most.

    `anonymous` is a probe of the same cluster without a token, `watch` includes this cluster, and `folder`
    is the directory of clusters.yaml.
    """
    hosts = dict.fromkeys([urlsplit(spec.dashboard).hostname or "", spec.head[0]])
    answer = asyncio.create_task(_answer_or_error(probe.version()))

    async def head_ports() -> Collection[int]:
        answered = await answer
        session_name = None if isinstance(answered, ClusterError) else answered.session_name
        return await asyncio.to_thread(head_ports_here, session_name) if session_name else ()

    version, without_token, snapshot, (dashboard_port, client_port), addresses = await asyncio.gather(
        answer,
        _answer_or_error(anonymous.version()),
        watch.probe(spec.name),
        head_state(spec, head_ports, timeout_s=timeout_s),
        asyncio.gather(*(resolve(name, timeout_s=timeout_s) for name in hosts)),
    )
    inventory = watch.inventory(spec.name)
    return Evidence(
        spec=spec,
        addresses=dict(zip(hosts, addresses, strict=True)),
        version=version,
        anonymous=without_token,
        token_set=token_set,
        snapshot=snapshot,
        jobs_listed=None if inventory is None else inventory.remembered,
        dashboard_port=dashboard_port,
        client_port=client_port,
        lost_after_s=lost_after_s,
        ours=ours,
        packed={str(path): path.exists() for path in _directories(spec, folder)},
    )


def _directories(spec: ClusterSpec, folder: Path) -> list[Path]:
    """Return the local paths in the cluster's own environment, which are packed and sent."""
    env = spec.runtime_env
    locations = (env.get("working_dir"), *(env.get("py_modules") or ()))
    return [local_path(folder, each) for each in locations if isinstance(each, str) and "://" not in each]


async def resolve(host: str, *, timeout_s: float) -> tuple[str, ...]:
    """Return the IP addresses of a host; empty if it cannot be resolved in time."""
    lookup = asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    try:
        infos = await asyncio.wait_for(lookup, timeout_s)
    except (OSError, UnicodeError, asyncio.TimeoutError):
        return ()
    return tuple(dict.fromkeys(str(address[0]) for *_, address in infos))


async def _answer_or_error(call: Awaitable[T]) -> T | ClusterError:
    try:
        return await call
    except ClusterError as error:
        return error


#: How the job of a trial begins its id on the cluster.
TRIAL_ID = "raymc-probe-"
#: The name that its metadata gives as its origin: no scheduler has it, so none takes the job for its own.
ORIGIN = "raymc doctor"
LOOK_EVERY_S = 0.5
#: Ray stops a job within about 4 s. One that has not begun stops when it begins.
STOPS_IN_S = 10.0
LOOK_AGAIN_S = 1.5
DELETIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """That a short job is to run on each cluster, and how."""

    packages: PackageStore
    timeout_s: float = TRIAL_S


async def diagnose_all(
    config: Config,
    specs: Sequence[ClusterSpec],
    environ: Mapping[str, str],
    clock: Clock,
    trials: Trials | None = None,
) -> dict[str, tuple[Check, ...]]:
    """Return the checks of each of these clusters of a configuration, by its name."""
    checked = await together(_diagnose(spec, config, environ, clock, trials) for spec in specs)
    return {spec.name: checks for spec, checks in zip(specs, checked, strict=True)}


async def _diagnose(
    spec: ClusterSpec, config: Config, environ: Mapping[str, str], clock: Clock, trials: Trials | None
) -> tuple[Check, ...]:
    settings = config.settings
    timeout_s = settings.probe_timeout_s
    async with (
        open_connection(
            spec, environ, request_timeout_s=timeout_s, upload_timeout_s=settings.upload_timeout_s
        ) as connection,
        HttpConnection(spec, request_timeout_s=timeout_s) as anonymous,
    ):
        evidence = await examine(
            spec,
            probe=connection.probe,
            anonymous=anonymous.probe,
            watch=ClusterWatch(
                {spec.name: connection}, clock=clock, settings=settings, jitter=jitter, lists_jobs=True
            ),
            token_set=bool(spec.auth_token_env and environ.get(spec.auth_token_env)),
            ours=Versions(ray=ray_version(), python=platform.python_version()),
            timeout_s=timeout_s,
            lost_after_s=settings.lost_after_refused_s,
            folder=config.path.resolve().parent,
        )
        checks = diagnose(evidence)
        if trials is None:
            return checks
        if not can_run(checks):
            return (*checks, not_run())
        trial = await _TrialJob(spec, config, connection, clock, trials).run()
    found = diagnose_trial(evidence, trial) if isinstance(trial, Trial) else [trial]
    hidden = secrets_of(spec.runtime_env)
    return (*checks, *(replace(check, says=redact_text(check.says, hidden)) for check in found))


class _TrialJob:
    """One short job on one cluster."""

    def __init__(
        self, spec: ClusterSpec, config: Config, connection: HttpConnection, clock: Clock, trials: Trials
    ) -> None:
        self._spec = spec
        self._config = config
        self._connection = connection
        self._executor = RayJobsExecutor(connection)
        self._clock = clock
        self._trials = trials
        self._id = f"{TRIAL_ID}{uuid.uuid4().hex}"
        self._seen: Sighting | None = None
        #: When the job was last known not to have begun.
        self._after = clock.now()

    async def run(self) -> Trial | Check:
        """Run the job and remove it from the cluster. Return the line about it if it printed nothing."""
        try:
            request = await self._packed()
        except (SchedulerError, OSError) as error:
            return no_result(f"a short job could not be sent: {error}")
        began = self._clock.monotonic()
        try:
            await self._executor.start(request)
            seen = await within(self._trials.timeout_s, self._end())
            took_s, before = self._clock.monotonic() - began, self._clock.now()
            log = await self._executor.log(self._id)
        except asyncio.TimeoutError:
            return late(self._id, self._seen, self._trials.timeout_s)
        except ClusterError as error:
            return no_result(f"a short job: {error.detail}")
        finally:
            await self._remove()
        if (found := found_in(log)) is None:
            return failed(seen, log)
        return Trial(found=found, took_s=took_s, after=self._after, before=before)

    async def _packed(self) -> StartRequest:
        """Return what an attempt of any job on this cluster would be sent with; its packages are there."""
        packages, spec = self._trials.packages, self._spec
        folder = self._config.path.resolve().parent
        own_env = await asyncio.to_thread(localise, spec.runtime_env, packages, cwd=folder)
        job = JobSpec(entrypoint=entrypoint(), user=ORIGIN, requirements={"CPU": 0.0})
        target, clusters = replace(spec, runtime_env=own_env), self._config.clusters
        request = compose_submit(self._id, job, 1, target, clusters, origin=ORIGIN)
        own_package = OwnPackage(packages) if spec.ship_package else None
        uploader = Uploader(self._connection.packages, packages)
        request, own_name = await pack(request, uploader, packages, own_package)
        if own_name is None:
            return request
        return replace(request, runtime_env=with_own_package(request.runtime_env, f"gcs://{own_name}"))

    async def _end(self) -> Sighting:
        """Wait until the job has ended."""
        while True:
            asked_at = self._clock.now()
            with suppress(ClusterTimeout, ClusterBadAnswer):  # the next look may get an answer
                self._seen = await self._executor.get(self._id)
                if self._seen.status.final:
                    return self._seen
                if self._seen.status is AttemptStatus.PENDING:
                    self._after = asked_at
            await asyncio.sleep(LOOK_EVERY_S)

    async def _remove(self) -> None:
        """Stop the job if it has not ended, and let the cluster forget it.

        Ray looks at a job once a second. If it finds that one was deleted that had ended since its last look,
        it writes a new record, as of a job that failed. So that one is deleted too.
        """
        with suppress(ClusterError, asyncio.TimeoutError):
            if self._seen is None or not self._seen.status.final:
                await self._executor.stop(self._id)
                await within(STOPS_IN_S, self._end())
            for _ in range(DELETIONS):
                await self._executor.delete(self._id)
                await asyncio.sleep(LOOK_AGAIN_S)
                await self._executor.get(self._id)  # it is gone: an error, which ends this
