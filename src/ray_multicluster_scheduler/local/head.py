"""Start one Ray head, ask whether it is ready, find out why it is not, and end all of its processes.

Ray binds all of its sockets to loopback, those of workers included, only when the node's address is
127.0.0.1. On Linux `ray start` replaces that address by the public one of the machine, unless it is told to
behave as on macOS (`RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0`). With another address, be it 127.0.0.2, the GCS,
the raylet, the workers and the metrics listen on every interface, and whoever reaches them can run code
here. So all heads share one address and differ in their ports.

There is no `--block`, because a blocking `ray start` ends the whole head as soon as one of its processes
dies, and a sandbox must be able to show how a head behaves that has lost its raylet or its GCS.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ray_multicluster_scheduler.errors import SandboxError
from ray_multicluster_scheduler.local.spec import LOOPBACK, Head, HeadSpec

# The processes of a head: all of them, and no others.
#
# Ray spreads out. `ray start` leaves its daemons in one session, but each worker has a process group of its
# own, and the driver of a job, the watcher beside it and whatever a task starts may have sessions of their
# own. Ids of processes and groups are recycled, and a user's `tail -f` may name the head's directory. So
# membership is a mark in the environment, which everything that a head starts inherits. Some of Ray's
# processes overwrite their environment with a title (`ray-dashboard-…`): those are found as children or
# session mates of marked ones.

#: Carries the head's own directory, so the mark of one head is never that of another.
MARK = "RAYMC_SANDBOX"
_KILL_TIMEOUT_S = 10.0

#: Command lines by role, first match wins. Ray 2.9 and 2.60 differ in the agents' titles.
_ROLES = (
    ("start", re.compile(r"ray\.scripts\.scripts start ")),
    ("gcs_server", re.compile(r"/gcs_server ")),
    ("raylet", re.compile(r"/raylet/raylet ")),
    ("runtime_env_agent", re.compile(r"ray::RuntimeEnvAgent|/runtime_env/agent/main\.py ")),
    ("agent", re.compile(r"ray::DashboardAgent|/dashboard/agent\.py ")),
    ("dashboard_module", re.compile(r"ray-dashboard-\w+|multiprocessing\.(forkserver|resource_tracker)")),
    ("dashboard", re.compile(r"/dashboard/dashboard\.py ")),
    ("log_monitor", re.compile(r"/log_monitor\.py ")),
    ("autoscaler", re.compile(r"/autoscaler/(?:\w+/){0,3}monitor\.py ")),
    ("client_server", re.compile(r"ray\.util\.client\.server ")),
    ("worker", re.compile(r"ray::|/default_worker\.py ")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One living process. Where the system does not tell its session, `session` is its group."""

    pid: int
    parent: int
    session: int
    command: str
    mark: str | None = None

    @property
    def role(self) -> str:
        """Name the part that this process plays; drivers and what they start are `other`."""
        return next((role for role, pattern in _ROLES if pattern.search(self.command + " ")), "other")


def find(mark: str) -> list[Process]:
    """Return the living processes of a head, or of a whole sandbox: `mark` is its directory."""
    return belonging(snapshot(), mark)


def belonging(processes: Iterable[Process], mark: str, ended: Iterable[Process] = ()) -> list[Process]:
    """Pick the processes marked with `mark` or a directory below it, their children and session mates.

    `ended` are members that may be gone by now: the processes that they have left behind belong here too.
    """
    others = [process for process in processes if process.pid != os.getpid()]
    relatives = {process.pid: process for process in ended}
    members: dict[int, Process] = {}
    new_members = [process for process in others if process.mark and _is_below(process.mark, mark)]
    while True:
        members |= {process.pid: process for process in new_members}
        relatives |= members
        # Session 0 belongs to a leader outside this container: its processes need not be related.
        sessions = {process.session for process in relatives.values()} - {0}
        # A process with another mark belongs to a sandbox that a job of this sandbox has started.
        new_members = [
            process
            for process in others
            if process.pid not in members
            and process.mark is None
            and (process.parent in relatives or process.session in sessions)
        ]
        if not new_members:
            return list(members.values())


def kill(mark: str) -> int:
    """End all processes of a head, or of a whole sandbox, and return how many there were.

    It searches again until none is left: a raylet may start a worker while it is being killed, and a process
    that is ending no longer shows its mark but still holds its ports. A process that was forked during a
    search and has overwritten its mark can only be found through the processes that were killed.
    """
    killed: dict[int, Process] = {}
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while True:
        processes = snapshot()
        living = {process.pid: process for process in belonging(processes, mark, killed.values())}
        ending = killed.keys() & {process.pid for process in processes}
        if not living and not ending:
            return len(killed)
        if time.monotonic() > deadline:
            pids = ", ".join(map(str, sorted(living.keys() | ending)))
            raise SandboxError(
                f"these processes cannot be ended, even by SIGKILL: {pids}; end them and try again"
            )
        for pid in living:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= living
        time.sleep(0.02)


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def snapshot() -> list[Process]:
    """Return every living process of this machine."""
    if sys.platform == "linux":
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return [process for process in map(_from_proc, pids) if process is not None]
    result = subprocess.run(
        ["ps", "-A", "-E", "-ww", "-o", "pid=,ppid=,pgid=,stat=,command="],
        capture_output=True,
        text=True,
        check=True,
        errors="replace",
    )
    return parse_ps(result.stdout)


def parse_ps(listing: str) -> list[Process]:
    """Read the processes from `ps -E`, as macOS has it: the environment follows the command line."""
    processes = []
    for line in listing.splitlines():
        pid, parent, group, state, *command = line.split(maxsplit=4)
        if not command or state.startswith("Z"):
            continue
        mark = re.search(rf"\s{MARK}=(\S+)", command[0])
        processes.append(
            Process(
                pid=int(pid),
                parent=int(parent),
                session=int(group),
                command=command[0],
                mark=mark.group(1) if mark else None,
            )
        )
    return processes


def _from_proc(pid: int) -> Process | None:
    """Read one process; None if it has ended."""
    entry = Path("/proc", str(pid))
    try:
        # The name in the second field may hold spaces and brackets: the fields are counted from its end.
        fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        # A process is reported dead when its first thread ends, but it ends with its last thread.
        if fields[0] in "ZX" and len(list((entry / "task").iterdir())) <= 1:
            return None
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(
        pid=pid, parent=int(fields[1]), session=int(fields[3]), command=command, mark=_mark_of(entry)
    )


def _mark_of(entry: Path) -> str | None:
    try:
        environment = (entry / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # ending, or another user's
        return None
    prefix = f"{MARK}=".encode()
    return next((os.fsdecode(item[len(prefix) :]) for item in environment if item.startswith(prefix)), None)


#: Small, so that several heads fit on a laptop; Ray spills larger objects to its temporary directory.
OBJECT_STORE_BYTES = 150_000_000
#: A healthy head answers in milliseconds; on a machine that starts several heads it may take seconds.
PROBE_TIMEOUT_S = 5.0
_LAST_LINES = 15


def launch(
    spec: HeadSpec, head: Head, token_file: Path | None, environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Run `ray start` for a head in a session of its own; it ends when Ray's daemons run."""
    with head.log.open("wb") as log:
        return subprocess.Popen(
            command(spec, head),
            env=environment(spec, head, token_file, environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=head.temp_dir.parent,
            start_new_session=True,
            preexec_fn=_heed_interrupts,  # noqa: PLW1509 - it takes no lock
        )


def _heed_interrupts() -> None:
    """Enable SIGINT, which shells disable for background programs: `ray.cancel` needs it in workers."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command(spec: HeadSpec, head: Head) -> list[str]:
    """Return the `ray start` command line, with a fixed value for every port."""
    ports = head.ports
    options: dict[str, object] = {
        "node-ip-address": LOOPBACK,
        "port": ports.gcs,
        "dashboard-host": LOOPBACK,
        "dashboard-port": ports.dashboard,
        "ray-client-server-port": ports.client,
        "dashboard-agent-listen-port": ports.agent_http,
        "dashboard-agent-grpc-port": ports.agent_grpc,
        "runtime-env-agent-port": ports.runtime_env_agent,
        "node-manager-port": ports.node_manager,
        "object-manager-port": ports.object_manager,
        "metrics-export-port": ports.node_metrics,
        "min-worker-port": ports.workers[0],
        "max-worker-port": ports.workers[-1],
        "temp-dir": head.temp_dir,
        "num-cpus": spec.cpus,
        "num-gpus": spec.gpus,
        "object-store-memory": OBJECT_STORE_BYTES,
        "include-dashboard": "true",
        "log-style": "record",
        "log-color": "false",
    }
    if spec.memory is not None:
        options["memory"] = spec.memory
    if spec.resources:
        options["resources"] = json.dumps(dict(spec.resources))
    flags = [f"--{name}={value}" for name, value in options.items()]
    python = spec.python or sys.executable
    return [python, "-m", "ray.scripts.scripts", "start", "--head", "--disable-usage-stats", *flags]


def environment(
    spec: HeadSpec, head: Head, token_file: Path | None, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a head, which its jobs inherit.

    Variables of the user for Ray or for us (addresses, tokens, modes) are left out: they are about other
    clusters. HOME stays, because pip and conda keep their settings there. Because the authentication mode is
    set here, Ray neither reads a token from `~/.ray` nor writes one there.
    """
    clean = {name: value for name, value in environ.items() if not name.startswith(("RAY_", "RAYMC_"))}
    auth = (
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file)}
        if token_file
        else {"RAY_AUTH_MODE": "disabled"}
    )
    python_dir = Path(spec.python or sys.executable).parent
    return {
        **clean,
        # `python` in the entrypoint of a job is the interpreter that has Ray.
        "PATH": f"{python_dir}:{environ.get('PATH', '/usr/bin:/bin')}",
        "TMPDIR": str(head.temp_dir),
        "RAY_USAGE_STATS_ENABLED": "0",
        # With it, one in some ten helper processes of Ray Client dies when it is forked (Ray's issue 63202).
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        **(spec.env or {}),
        **auth,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "AUTOSCALER_METRIC_PORT": str(head.ports.autoscaler_metrics),
        "DASHBOARD_METRIC_PORT": str(head.ports.dashboard_metrics),
        MARK: head.mark,
    }


def answers(head: Head, token: str | None) -> bool:
    """Tell whether a head can take work: it shows a living node, and Ray Client listens.

    `/api/version` would not do: it answers before the node is there, and for a minute after the GCS died.
    """
    headers = {"User-Agent": "ray-multicluster-scheduler"}  # Ray 2.9 answers 500 without one
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection = http.client.HTTPConnection(LOOPBACK, head.ports.dashboard, timeout=PROBE_TIMEOUT_S)
    try:
        connection.request("GET", "/api/v0/nodes", headers=headers)
        nodes = json.load(connection.getresponse())["data"]["result"]["result"]
        socket.create_connection((LOOPBACK, head.ports.client), timeout=PROBE_TIMEOUT_S).close()
        return any(node["state"] == "ALIVE" for node in nodes)
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return False
    finally:
        connection.close()


def last_words(head: Head) -> str:
    """Return the end of the logs of a head that did not start, indented for an error message."""
    logs = head.temp_dir / "session_latest" / "logs"
    paths = [
        head.log,
        *(logs / name for name in ("gcs_server.err", "raylet.err", "dashboard.err", "dashboard.log")),
    ]
    parts = []
    for path in paths:
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        if lines:
            parts += [f"  {path.name}:", *(f"    {line}" for line in lines[-_LAST_LINES:])]
    return "\n".join(parts) or "  (it wrote nothing)"
