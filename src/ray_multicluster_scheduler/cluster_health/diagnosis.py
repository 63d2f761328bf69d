"""The checks of `raymc doctor`: from evidence about a cluster to one verdict per check, with advice."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from packaging.version import Version

from ray_multicluster_scheduler.config.installed import how_to_install
from ray_multicluster_scheduler.environment.compose import compose
from ray_multicluster_scheduler.environment.options import checkouts_on_path
from ray_multicluster_scheduler.environment.ray_needs import ray_needs, ray_objection
from ray_multicluster_scheduler.errors import (
    ClusterAuthFailed,
    ClusterError,
    ClusterRefused,
    ClusterTimeout,
    ClusterUnreachable,
    InvalidRuntimeEnv,
)
from ray_multicluster_scheduler.model.cluster import (
    NO_NEEDS,
    ClusterSnapshot,
    ClusterSpec,
    Health,
    RemoteVersion,
)
from ray_multicluster_scheduler.model.resources import show

OLDEST_RAY = Version("2.9")
JOBS_REST = "4"
REMOVE_CHECKOUT = "remove that line (docs/how-to/from-the-older-package.md)"


class Verdict(str, Enum):
    """The outcome of one check."""

    OK = "ok"
    PROBLEM = "problem"
    #: Worth knowing, or impossible to check from here.
    NOTE = "note"
    #: Another check has to pass first.
    SKIPPED = "skipped"


class PortState(str, Enum):
    """The state of a TCP port."""

    OPEN = "open"
    REFUSED = "refused"
    SILENT = "silent"
    #: Open on this machine, but it is not the head that listens: it may be a tunnel to it.
    FORWARDED = "forwarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the doctor's report."""

    name: str
    verdict: Verdict
    says: str
    #: What to do about it; empty when there is nothing to do.
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """A Ray and a Python version that must match for tasks and actors."""

    #: None: Ray is not installed.
    ray: str | None
    python: str

    def matches(self, other: Versions) -> bool:
        """Tell whether tasks and actors can pass between the two: same Ray, same Python minor."""
        return self.ray == other.ray and self.python.split(".")[:2] == other.python.split(".")[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that was observed of one cluster."""

    spec: ClusterSpec
    #: IP addresses by host name, for the hosts of `dashboard` and `head_address`; empty: not resolved.
    addresses: Mapping[str, tuple[str, ...]]
    version: RemoteVersion | ClusterError
    #: The same query without a token: an answer means that no token is needed.
    anonymous: RemoteVersion | ClusterError
    #: Whether the variable that `auth_token_env` names has a value here.
    token_set: bool
    snapshot: ClusterSnapshot
    jobs_listed: int | None
    dashboard_port: PortState
    client_port: PortState
    #: The setting `lost_after_refused_s`.
    lost_after_s: float
    #: The versions of this process.
    ours: Versions
    #: Local paths in the cluster's own environment, and whether they exist.
    packed: Mapping[str, bool] = field(default_factory=dict)


def diagnose(evidence: Evidence) -> tuple[Check, ...]:
    """Return one verdict per check, in the order in which a person would look."""
    return tuple(result for check in CHECKS if (result := check(evidence)) is not None)


def _address(evidence: Evidence) -> Check:
    unresolved = [host for host, addresses in evidence.addresses.items() if not addresses]
    if unresolved:
        return Check(
            name="address",
            verdict=Verdict.PROBLEM,
            says=f"{' and '.join(map(repr, unresolved))} cannot be resolved to an IP address",
            advice="correct `head_address` or `dashboard` in clusters.yaml, or the DNS of this machine",
        )
    says = ", ".join(
        host if addresses == (host,) else f"{host} is {' and '.join(addresses)}"
        for host, addresses in evidence.addresses.items()
    )
    return Check(name="address", verdict=Verdict.OK, says=says)


def _dashboard(evidence: Evidence) -> Check:
    url = evidence.spec.dashboard
    match evidence.version:
        case RemoteVersion() | ClusterAuthFailed():
            return Check(name="dashboard", verdict=Verdict.OK, says=f"{url} answers")
        case ClusterUnreachable(refused=True):
            advice = (
                "start Ray there (`ray start --head --dashboard-host=0.0.0.0`; without that option the "
                "dashboard listens only on its own machine), or correct `dashboard`"
            )
        case ClusterTimeout():
            advice = "look for a firewall in between, or a dashboard that hangs (`ray status` on the head)"
        case ClusterRefused():
            advice = "this is not Ray's dashboard, or one older than 2.9; correct `dashboard`"
        case _:
            advice = (
                "correct `dashboard`: host, port (8265 by default; Ray Client's 10001 goes under "
                "`head_address`), and http:// or https://"
            )
    return Check(name="dashboard", verdict=Verdict.PROBLEM, says=evidence.version.detail, advice=advice)


def _ray_version(evidence: Evidence) -> Check:
    if isinstance(evidence.version, ClusterError):
        return _skipped("Ray version")
    says = f"{evidence.version.ray_version}, Jobs REST {evidence.version.api_version}"
    try:
        too_old = Version(evidence.version.ray_version).release < OLDEST_RAY.release
    except ValueError:  # also of a number that is too long for Python
        return Check(
            name="Ray version",
            verdict=Verdict.NOTE,
            says=f"{says}: not a version number that can be compared",
        )
    if too_old or evidence.version.api_version != JOBS_REST:
        return Check(
            name="Ray version",
            verdict=Verdict.PROBLEM,
            says=says,
            advice=f"jobs need Ray {OLDEST_RAY} or newer with Jobs REST {JOBS_REST}: upgrade the cluster",
        )
    return Check(name="Ray version", verdict=Verdict.OK, says=says)


def _token(evidence: Evidence) -> Check:
    variable = evidence.spec.auth_token_env
    if isinstance(evidence.version, ClusterAuthFailed):
        return Check(name="token", verdict=Verdict.PROBLEM, says=evidence.version.detail)
    if isinstance(evidence.version, ClusterError):
        return _skipped("token")
    if isinstance(evidence.anonymous, ClusterAuthFailed):
        return Check(name="token", verdict=Verdict.OK, says=f"the token in {variable} is accepted")
    if variable is not None and not evidence.token_set:
        return Check(
            name="token",
            verdict=Verdict.NOTE,
            says=f"{variable} is not set, and the cluster asks for no token",
            advice=f"remove `auth_token_env`, or set {variable} before the cluster asks for it",
        )
    return Check(name="token", verdict=Verdict.NOTE, says="the cluster asks for none")


def _nodes_and_jobs(evidence: Evidence) -> Check:
    """Use the same probe that decides about health: `/api/version` alone proves nothing."""
    if isinstance(evidence.version, ClusterError):
        return _skipped("nodes and jobs")
    if evidence.snapshot.health is not Health.HEALTHY:
        return Check(
            name="nodes and jobs",
            verdict=Verdict.PROBLEM,
            says=evidence.snapshot.problem or "no answer",
            advice="the dashboard answers, the cluster behind it does not: see `ray status` on the head",
        )
    nodes = evidence.snapshot.nodes or ()
    alive = sum(node.alive for node in nodes)
    total = show(evidence.snapshot.total or {})
    listed = "no job list in time" if evidence.jobs_listed is None else f"{evidence.jobs_listed} jobs listed"
    says = f"{alive} of {len(nodes)} nodes alive, {listed}, {total}"
    return Check(name="nodes and jobs", verdict=Verdict.OK, says=says)


def _tasks_and_actors(evidence: Evidence) -> Check:
    if evidence.snapshot.ray_version is None:
        return _skipped("tasks and actors")
    if evidence.snapshot.python_version is None:
        return Check(
            name="tasks and actors",
            verdict=Verdict.NOTE,
            says=f"Ray {evidence.snapshot.ray_version} there, but it does not tell its Python version",
            advice="jobs work; tasks and actors need "
            f"Ray {evidence.ours.ray} and Python {evidence.ours.python}",
        )
    if evidence.ours.ray is None:
        return Check(
            name="tasks and actors",
            verdict=Verdict.NOTE,
            says=f"Ray {evidence.snapshot.ray_version} there, and no Ray here",
            advice=f"jobs work; for tasks and actors: {how_to_install('tasks')}",
        )
    theirs = Versions(ray=evidence.snapshot.ray_version, python=evidence.snapshot.python_version)
    says = f"Ray {theirs.ray} and Python {theirs.python} there"
    if evidence.ours.matches(theirs):
        return Check(name="tasks and actors", verdict=Verdict.OK, says=f"{says}, as here")
    return Check(
        name="tasks and actors",
        verdict=Verdict.NOTE,
        says=f"{says}, Ray {evidence.ours.ray} and Python {evidence.ours.python} here",
        advice="jobs work; for tasks and actors run this program with the versions of the cluster",
    )


def _client_port(evidence: Evidence) -> Check:
    address = evidence.spec.head_address
    if not all(evidence.addresses.values()):
        return _skipped("Ray Client")
    if evidence.client_port in {PortState.OPEN, PortState.FORWARDED}:
        return Check(name="Ray Client", verdict=Verdict.OK, says=f"{address} is open")
    says = "refuses connections" if evidence.client_port is PortState.REFUSED else "does not answer"
    return Check(
        name="Ray Client",
        verdict=Verdict.PROBLEM,
        says=f"{address} {says}",
        advice="open the port that `ray start --head` was given as --ray-client-server-port (default "
        "10001), or correct `head_address`: tasks and actors need it, and so does the failover of jobs",
    )


def _failover(evidence: Evidence) -> Check:
    """Say what becomes of the jobs of this head when it dies (core/lifecycle/attempts.py)."""
    if isinstance(evidence.version, ClusterError) or not all(evidence.addresses.values()):
        return _skipped("failover")
    if evidence.dashboard_port is evidence.client_port is PortState.OPEN:
        says = f"if this head dies, its jobs are started elsewhere after {evidence.lost_after_s:g} s"
        return Check(name="failover", verdict=Verdict.OK, says=says)
    states = {"dashboard": evidence.dashboard_port, "head_address": evidence.client_port}
    tunnels = [f"`{key}`" for key, state in states.items() if state is PortState.FORWARDED]
    why, advice = (
        (
            f"a tunnel of this machine, not the head, listens at {' and '.join(tunnels)}",
            f"set {' and '.join(tunnels)} to an address of the head itself that can be reached without it",
        )
        if tunnels
        else (
            f"{evidence.spec.head_address} is not open, so it cannot show that the head is gone",
            "open that port, or set `head_address` to an address of the head that can be reached",
        )
    )
    return Check(
        name="failover",
        verdict=Verdict.NOTE,
        says=f"if this head dies, its jobs wait for it: {why}",
        advice=f"{advice}; or let the jobs decide with `on_unreachable`",
    )


def _environment(evidence: Evidence) -> Check:
    """Check the cluster's own environment. Its local directories are packed and sent like those of a job."""
    missing = [path for path, exists in evidence.packed.items() if not exists]
    try:
        environment = compose(_without_directories(evidence), {}, identity={}, overlay=True)
    except InvalidRuntimeEnv as error:
        return Check(name="environment", verdict=Verdict.PROBLEM, says=str(error))
    if missing:
        return Check(
            name="environment",
            verdict=Verdict.PROBLEM,
            says=f"{missing[0]!r} does not exist on this machine, from where it is sent to the cluster",
            advice="relative paths start at the directory of clusters.yaml",
        )
    problem = ray_objection(NO_NEEDS, ray_needs(environment), evidence.snapshot.ray_version)
    if problem is not None:
        return Check(name="environment", verdict=Verdict.PROBLEM, says=problem)
    conda = environment.get("conda")
    if isinstance(conda, str):
        return Check(
            name="environment",
            verdict=Verdict.NOTE,
            says=f"valid; whether conda environment {conda!r} exists there cannot be checked from here",
            advice="`raymc doctor --run` finds out with a short job",
        )
    parts = [*sorted(environment), *(f"{path} (packed and sent with each job)" for path in evidence.packed)]
    says = ", ".join(parts) or "nothing is set for this cluster"
    return Check(name="environment", verdict=Verdict.OK, says=says)


def _other_packages(evidence: Evidence) -> Check | None:
    """Name the checkouts on PYTHONPATH that may hold an older package of our name; None if there are none."""
    problem = other_packages_problem(evidence.spec)
    if problem is None:
        return None
    verdict = Verdict.NOTE if evidence.spec.ship_package else Verdict.PROBLEM
    return Check(name="this package", verdict=verdict, says=problem, advice=REMOVE_CHECKOUT)


def other_packages_problem(spec: ClusterSpec) -> str | None:
    """Say what comes of a PYTHONPATH with a directory of our name, which may hold an older package."""
    checkouts = checkouts_on_path(spec.runtime_env.get("env_vars", {}))
    if not checkouts:
        return None
    says = f"PYTHONPATH names {', '.join(checkouts)}: if an older package of this name lies there, "
    if spec.ship_package:
        return f"{says}programs started by hand import it; jobs carry this one, which comes first"
    return f"{says}jobs import it, because `ship_package` is false"


def _without_directories(evidence: Evidence) -> dict[str, Any]:
    """Return the cluster's environment without local directories: Ray gets them as packages."""
    if not evidence.packed:
        return dict(evidence.spec.runtime_env)
    env = {option: value for option, value in evidence.spec.runtime_env.items() if option != "excludes"}
    if "://" not in env.get("working_dir", "://"):
        del env["working_dir"]
    if "py_modules" in env:
        env["py_modules"] = [module for module in env["py_modules"] if "://" in module]
    return env


def _limits(evidence: Evidence) -> Check | None:
    """Compare `max_resources` with the present size; None if it is not configured."""
    most, total = evidence.spec.max_resources, evidence.snapshot.total
    if most is None:
        return None
    if total is None:
        return _skipped("max_resources")
    over = {name: total[name] for name, amount in most.items() if total.get(name, 0.0) > amount}
    if over:
        return Check(
            name="max_resources",
            verdict=Verdict.PROBLEM,
            says=f"{show({name: most[name] for name in over})} at most, but the cluster has {show(over)}",
            advice="set it to what the autoscaler can grow to, or remove it",
        )
    return Check(name="max_resources", verdict=Verdict.OK, says=f"can grow to {show(most)}")


def _security(evidence: Evidence) -> Check:
    """Check access: anyone who reaches a dashboard without a token can run programs on the cluster."""
    if isinstance(evidence.version, ClusterError):
        return _skipped("security")
    if all(
        ipaddress.ip_address(a).is_loopback for addresses in evidence.addresses.values() for a in addresses
    ):
        return Check(name="security", verdict=Verdict.OK, says="only this machine can reach it")
    if not isinstance(evidence.anonymous, ClusterAuthFailed):
        return Check(
            name="security",
            verdict=Verdict.NOTE,
            says="everybody who reaches this address can run programs on the cluster",
            advice="start Ray with RAY_AUTH_MODE=token and set `auth_token_env`, or keep strangers out of "
            "this network",
        )
    if evidence.spec.dashboard.startswith("http://"):
        return Check(
            name="security",
            verdict=Verdict.NOTE,
            says="it asks for a token, which travels unencrypted over http",
            advice="put a TLS proxy in front and use https://, unless the network is private",
        )
    return Check(
        name="security", verdict=Verdict.OK, says="it asks for a token, and the connection is encrypted"
    )


def _skipped(name: str) -> Check:
    return Check(name=name, verdict=Verdict.SKIPPED, says="not checked: solve the problems above first")


CHECKS: tuple[Callable[[Evidence], Check | None], ...] = (
    _address,
    _dashboard,
    _token,
    _ray_version,
    _nodes_and_jobs,
    _environment,
    _other_packages,
    _limits,
    _client_port,
    _failover,
    _tasks_and_actors,
    _security,
)
