"""Find and end the processes of a head: all of them, and no others.

Ray spreads out. `ray start` leaves its daemons in one session, but each worker has a process group of its
own, and the driver of a job, the watcher beside it and whatever a task starts may have sessions of their
own. Ids of processes and groups are recycled, and a user's `tail -f` may name the head's directory. So
membership is a mark in the environment, which everything that a head starts inherits. Some of Ray's
processes overwrite their environment with a title (`ray-dashboard-…`): those are found as children or
session mates of marked ones.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ray_multicluster_scheduler.errors import SandboxError

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
