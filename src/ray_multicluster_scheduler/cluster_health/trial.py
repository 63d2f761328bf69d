"""The short job of `raymc doctor --run`: from what it found on a node to one verdict per check."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import TypeAdapter, ValidationError

from ray_multicluster_scheduler.cluster_health import trial_program
from ray_multicluster_scheduler.cluster_health.diagnosis import REMOVE_CHECKOUT, Check, Evidence, Verdict
from ray_multicluster_scheduler.environment.setup_failure import MAX_CHARS
from ray_multicluster_scheduler.model.execution import AttemptStatus, Sighting
from ray_multicluster_scheduler.model.failure import FailureKind
from ray_multicluster_scheduler.model.resources import GIB
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
