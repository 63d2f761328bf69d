"""`Sandbox`: real Ray heads on this machine, started together, and stopped completely."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from ray_multicluster_scheduler.background import ControlFiles, ask_to_end
from ray_multicluster_scheduler.config.find import FILE_NAME, HOME_VARIABLE, SANDBOX_STATE, state_dir
from ray_multicluster_scheduler.config.installed import check_ray
from ray_multicluster_scheduler.errors import SandboxError, SchedulerError
from ray_multicluster_scheduler.local import head as heads
from ray_multicluster_scheduler.local.head import answers, last_words, launch
from ray_multicluster_scheduler.local.spec import (
    Head,
    HeadSpec,
    HeadState,
    Phase,
    PortClaims,
    Ports,
    check_heads,
)

# The state of a sandbox on disk, so that a later process can find, repair and stop its clusters.
#
# Everything is below `<home>/local`, readable by its owner only. Ray's own files are below a directory in
# /tmp with a short name, because the path of a Unix socket must not exceed about a hundred characters.


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One cluster of a sandbox: the wanted cluster, and its head."""

    spec: HeadSpec
    head: Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A sandbox that is up, or was when its last process ended."""

    members: tuple[Member, ...]
    #: Where its clusters.yaml is.
    config: Path


class StateDir:
    """The directory `<home>/local` and its counterpart in /tmp."""

    def __init__(self, home: Path) -> None:
        self.home = home.expanduser().resolve()
        self.root = self.home / "local"
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:10]
        self._state_file = self.root / SANDBOX_STATE
        #: Resolved, because on macOS /tmp is a link and Ray compares real paths.
        self.scratch = Path("/tmp").resolve() / f"raymc-{digest}"  # noqa: S108 - made with mode 0700, owner checked

    @property
    def config(self) -> Path:
        """The generated clusters.yaml, which is where every other command looks for it."""
        return self.root / FILE_NAME

    def token_file(self, name: str) -> Path:
        """Where the token of a head is, for the head itself and for the user to read."""
        return self.root / f"{name}.token"

    @contextmanager
    def lock(self, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Let one process at a time change this sandbox; `waiting` is called when another one does."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.root / "lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def make_scratch(self) -> None:
        """Make the directory in /tmp; refuse one that another user has put there."""
        self.scratch.mkdir(mode=0o700, exist_ok=True)
        status = self.scratch.lstat()
        if self.scratch.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise SandboxError(
                f"{self.scratch} is not a private directory of this user; remove it and try again"
            )

    def read(self) -> Saved | None:
        """Return the saved state; None if this sandbox is not up."""
        try:
            text = self._state_file.read_text()
        except FileNotFoundError:
            return None
        try:
            document = json.loads(text)
            members = tuple(self._member(entry) for entry in document["heads"])
            return Saved(members=members, config=Path(document["config"]))
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise SandboxError(
                f"{self._state_file} is damaged ({type(error).__name__}: {error}); "
                "`raymc local down` clears it"
            ) from error

    def write(self, saved: Saved) -> None:
        """Remember a sandbox. Called before a process is started and after."""
        document = {"config": str(saved.config), "heads": [_entry(member) for member in saved.members]}
        write_private(self._state_file, json.dumps(document, indent=1))

    def forget(self) -> None:
        """Remove all files except the lock, which another process may be waiting for, and clusters.yaml.

        With it the jobs that have run here can still be looked at. One in another place was made for a
        program, and goes with its clusters.
        """
        with suppress(SandboxError):
            if (saved := self.read()) and saved.config != self.config:
                saved.config.unlink(missing_ok=True)
        for path in (*self.root.glob("*.token"), self._state_file):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _member(self, entry: dict[str, Any]) -> Member:
        fields_of_spec = entry["spec"] | {"tags": tuple(entry["spec"]["tags"])}
        name = fields_of_spec["name"]
        if entry["has_token"]:
            fields_of_spec["token"] = self.token_file(name).read_text()
        head = Head(
            name=name,
            ports=Ports.at(entry["first_port"]),
            temp_dir=Path(entry["temp_dir"]),
            pgid=entry["pgid"],
        )
        return Member(spec=HeadSpec(**fields_of_spec), head=head)


def check_same_request(specs: Iterable[HeadSpec], config: Path, saved: Saved) -> None:
    """Refuse to replace clusters that are up: their jobs would be lost without a warning."""
    if config != saved.config:
        raise SandboxError(
            f"the local clusters are up with their configuration in {saved.config}, not {config}; "
            "run `raymc local down` first"
        )
    wanted = {spec.name: spec for spec in specs}
    existing = {member.spec.name: member.spec for member in saved.members}
    differing = sorted(
        name
        for name in wanted.keys() | existing.keys()
        if _identity(wanted.get(name)) != _identity(existing.get(name))
    )
    if differing:
        raise SandboxError(
            f"other local clusters are up: {', '.join(differing)} would be added, removed or changed; "
            "run `raymc local down` first, or `raymc local up` without options to keep what is there"
        )


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner only."""
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(partial).replace(path)


def _entry(member: Member) -> dict[str, Any]:
    head = member.head
    return {
        "spec": _without_token(member.spec),
        "has_token": member.spec.token is not None,
        "first_port": head.ports.base,
        "temp_dir": str(head.temp_dir),
        "pgid": head.pgid,
    }


def _without_token(spec: HeadSpec) -> dict[str, Any]:
    """Write a spec without its token, which has a file of its own."""
    return {f.name: getattr(spec, f.name) for f in fields(spec) if f.name != "token"}


def _identity(spec: HeadSpec | None) -> tuple[str, str | None] | None:
    """Make specs comparable: a saved spec has lists where another one may have tuples."""
    return (json.dumps(_without_token(spec), sort_keys=True), spec.token) if spec else None


# The clusters.yaml of a sandbox: with it, `raymc local up` and then any other command just works.


_COMMENT = "# Written by `raymc local up`. The clusters are there until `raymc local down`.\n"


def render(members: Iterable[Member]) -> str:
    """Write the configuration of these clusters. Tokens are named by their variable, never written."""
    clusters = {member.spec.name: _cluster_entry(member) for member in members}
    return _COMMENT + yaml.safe_dump({"clusters": clusters}, sort_keys=False, allow_unicode=True)


def _cluster_entry(member: Member) -> dict[str, Any]:
    spec, head = member.spec, member.head
    entry: dict[str, Any] = {"head_address": head.client_address, "dashboard": head.dashboard}
    if spec.tags:
        entry["tags"] = list(spec.tags)
    if spec.token_variable:
        entry["auth_token_env"] = spec.token_variable
    if spec.runtime_env:
        entry["runtime_env"] = dict(spec.runtime_env)
    return entry


#: Two heads need about ten seconds; a loaded machine may need many times that.
START_TIMEOUT_S = 180.0
_POLL_S = 0.2
#: A head that has lost one of these processes does not recover by itself.
_ESSENTIAL = {"gcs_server", "raylet", "dashboard"}

#: Called with the name of a cluster and the progress of its start.
Report = Callable[[str, Phase], None]


def _no_report(name: str, phase: Phase) -> None:
    """Ignore a report."""


class Sandbox:
    """Real Ray clusters on this machine, one head each. As a context manager: up on entry, down on exit.

    The clusters belong to `home`, not to this object: another process can `attach` to them, and `down` ends
    all of them, even if the process that started them has crashed.
    """

    def __init__(self, home: Path, heads: Sequence[HeadSpec], *, config_path: Path | None = None) -> None:
        check_heads(heads)
        self._dir = StateDir(home)
        self._specs = tuple(heads)
        #: A clusters.yaml for these clusters. In the home it stays when they are down, for their history.
        self.config_path = config_path.absolute() if config_path else self._dir.config
        self._members: dict[str, Member] = {}

    @classmethod
    def attach(cls, home: Path) -> Sandbox:
        """Return the sandbox that an earlier process left at `home`, whatever its state."""
        if sandbox := cls.find(home):
            return sandbox
        raise SandboxError(f"no local clusters are up at {home}; `raymc local up` starts some")

    @classmethod
    def find(cls, home: Path) -> Sandbox | None:
        """Do what `attach` does, but return None if no cluster is up."""
        saved = StateDir(home).read()
        if saved is None:
            return None
        sandbox = cls(home, [member.spec for member in saved.members], config_path=saved.config)
        sandbox._members = {member.spec.name: member for member in saved.members}
        return sandbox

    @staticmethod
    def clean(home: Path) -> int:
        """Stop and remove everything that belongs to `home`, even if the state file is damaged.

        Returns the number of processes that were stopped.
        """
        directory = StateDir(home)
        with directory.lock():
            return _clear(directory)

    @property
    def heads(self) -> dict[str, Head]:
        """The heads by name; empty while the sandbox is down."""
        return {name: member.head for name, member in self._members.items()}

    @property
    def specs(self) -> tuple[HeadSpec, ...]:
        """The wanted clusters, in the given order."""
        return self._specs

    def token_file(self, name: str) -> Path:
        """Where the token of a head is while it is up; only this user can read the file."""
        return self._dir.token_file(name)

    def __enter__(self) -> Sandbox:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self, progress: Report = _no_report) -> None:
        """Start all heads that do not run yet, and return when every head can take work.

        If one fails, the heads that this call has started are stopped again.
        """
        check_ray("local clusters")
        with (
            self._dir.lock(lambda: self._report_waiting(progress)),
            PortClaims() as claims,
            ExitStack() as undo,
        ):
            saved = self._dir.read()
            if saved is None:
                self._clear()  # remains of a sandbox whose state was deleted
                undo.callback(self._clear)
                self._plan(claims)
            else:
                check_same_request(self._specs, self.config_path, saved)
                self._members = {member.spec.name: member for member in saved.members}
            self._bring_up(list(self._members), claims, progress)
            write_private(self.config_path, render(self._members.values()))
            undo.pop_all()

    def down(self) -> None:
        """Stop everything and leave no process behind, and no file but the clusters.yaml of the home."""
        with self._dir.lock():
            self._clear()

    def kill(self, name: str) -> None:
        """End all processes of one head at once, as a power cut would."""
        with self._dir.lock():
            heads.kill(self._member(name).head.mark)

    def start(self, name: str, progress: Report = _no_report) -> None:
        """Start a head again on the same ports. For Ray it is a new session, which knows no old job."""
        self._member(name)
        with self._dir.lock(lambda: progress(name, Phase.WAITING)), PortClaims() as claims:
            self._bring_up([name], claims, progress)

    def state_of(self, name: str) -> HeadState:
        """Return whether a head answers and, if not, whether processes of it are left."""
        member = self._member(name)
        if answers(member.head, member.spec.token):
            return HeadState.RUNNING
        return HeadState.SILENT if self.pids(name) else HeadState.STOPPED

    def pids(self, name: str) -> dict[str, list[int]]:
        """Return the living processes of a head by role: `gcs_server`, `raylet`, `dashboard`, `agent`, …"""
        by_role: dict[str, list[int]] = {}
        for process in heads.find(self._member(name).head.mark):
            by_role.setdefault(process.role, []).append(process.pid)
        return by_role

    def _member(self, name: str) -> Member:
        if name not in self._members:
            known = ", ".join(self._members) or "none, it is down"
            raise SandboxError(f"the sandbox has no cluster {name!r}; its clusters: {known}")
        return self._members[name]

    def _plan(self, claims: PortClaims) -> None:
        """Give every cluster its ports and its directory, and remember them before anything runs."""
        self._dir.make_scratch()
        for number, spec in enumerate(self._specs):
            head = Head(name=spec.name, ports=claims.hold_new(), temp_dir=self._dir.scratch / str(number))
            self._members[spec.name] = Member(spec=spec, head=head)
            if spec.token:
                write_private(self.token_file(spec.name), spec.token)
        self._save()

    def _bring_up(self, names: Sequence[str], claims: PortClaims, progress: Report) -> None:
        """Launch the heads that do not run and wait until all answer; on failure, undo the launches."""
        starts: dict[str, subprocess.Popen[bytes]] = {}
        with ExitStack() as undo:
            undo.callback(self._abandon, starts)
            for name in names:
                if not self._can_recover(name):
                    heads.kill(self._member(name).head.mark)
                    claims.hold(self._member(name).head.ports)
                    starts[name] = self._launch(name)
                    progress(name, Phase.STARTING)
            self._wait(names, starts, progress)
            undo.pop_all()

    def _launch(self, name: str) -> subprocess.Popen[bytes]:
        member = self._members[name]
        self._dir.make_scratch()
        member.head.temp_dir.mkdir(exist_ok=True)
        token_file = self.token_file(name) if member.spec.token else None
        start = launch(member.spec, member.head, token_file, os.environ)
        self._members[name] = replace(member, head=replace(member.head, pgid=start.pid))
        self._save()
        return start

    def _wait(
        self, names: Iterable[str], starts: dict[str, subprocess.Popen[bytes]], progress: Report
    ) -> None:
        waiting = list(names)
        second_try: set[str] = set()
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            for name in list(waiting):
                if name not in second_try and name in starts and starts[name].poll():
                    second_try.add(name)  # `ray start` gives its daemons 30 s, which a busy machine may need
                    heads.kill(self._members[name].head.mark)
                    starts[name] = self._launch(name)
                if self._is_ready(name, starts.get(name)):
                    progress(name, Phase.READY)
                    waiting.remove(name)
            if not waiting:
                return
            if time.monotonic() > deadline:
                raise self._failure(waiting[0], f"did not answer within {START_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)

    def _is_ready(self, name: str, start: subprocess.Popen[bytes] | None) -> bool:
        """Tell whether a head answers; raise if it never will."""
        code = start.poll() if start else 0
        if code is None:
            return False
        if code != 0:
            raise self._failure(name, f"did not start: `ray start` ended with exit code {code}")
        member = self._members[name]
        if answers(member.head, member.spec.token):
            return True
        if not self._can_recover(name):
            raise self._failure(name, "died while it was starting")
        return False

    def _can_recover(self, name: str) -> bool:
        """Tell whether a head runs, or may still start: no essential process is missing."""
        roles = self.pids(name).keys()
        return "start" in roles or roles >= _ESSENTIAL

    def _failure(self, name: str, what: str) -> SandboxError:
        head = self._members[name].head
        return SandboxError(f"the local cluster {name!r} {what}. The end of its logs:\n{last_words(head)}")

    def _abandon(self, starts: dict[str, subprocess.Popen[bytes]]) -> None:
        for name, start in starts.items():
            heads.kill(self._members[name].head.mark)
            start.wait()

    def _save(self) -> None:
        self._dir.write(Saved(members=tuple(self._members.values()), config=self.config_path))

    def _clear(self) -> None:
        _clear(self._dir)
        self._members = {}

    def _report_waiting(self, progress: Report) -> None:
        for spec in self._specs:
            progress(spec.name, Phase.WAITING)


def _clear(directory: StateDir) -> int:
    configs = {directory.config}
    with suppress(SandboxError):  # a damaged state is cleared too
        configs |= {saved.config} if (saved := directory.read()) else set()
    for config in configs:
        ask_to_end(ControlFiles(state_dir(config, {HOME_VARIABLE: str(directory.home)})))
    ended = heads.kill(str(directory.scratch))
    directory.forget()
    return ended


# `raymc serve` in a process of its own, for as long as it is needed.

SERVER_START_S = 60.0
SERVER_STOP_S = 30.0
_SERVER_POLL_S = 0.1
_ADDRESS_LINE = re.compile(r"stock Ray clients +(\S+)")


@contextmanager
def served(
    config: Path, *, log: Path, store: Path | None = None, options: Sequence[str] = ()
) -> Iterator[str]:
    """Run a server on these clusters and any free port, and yield its address. Its output goes to `log`."""
    command = [sys.executable, "-m", "ray_multicluster_scheduler.cli.main", "serve", "--port", "0"]
    command += ["--config", os.fspath(config), *(["--store", os.fspath(store)] if store else []), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=output)
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        try:
            process.wait(SERVER_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + SERVER_START_S
    while process.poll() is None and time.monotonic() < deadline:
        if match := _ADDRESS_LINE.search(log.read_text()):
            return match[1]
        time.sleep(_SERVER_POLL_S)
    raise SchedulerError(f"the server did not start: {log.read_text().strip() or 'it said nothing'}")
