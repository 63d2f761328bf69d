"""The state of a sandbox on disk, so that a later process can find, repair and stop its clusters.

Everything is below `<home>/local`, readable by its owner only. Ray's own files are below a directory in
/tmp with a short name, because the path of a Unix socket must not exceed about a hundred characters.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.config.find import FILE_NAME, SANDBOX_STATE
from ray_multicluster_scheduler.errors import SandboxError
from ray_multicluster_scheduler.local.spec import Head, HeadSpec
from ray_multicluster_scheduler.local.tcp_ports import Ports


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
