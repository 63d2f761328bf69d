"""A PostgreSQL server for tests: real, on loopback, in a directory of its own, started in about a second."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.waiting import PATIENCE_S, until

HOST = "127.0.0.1"
USER = "raymc"
#: Durability as in production; less memory.
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "log_min_messages": "fatal",
}

NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


def binaries() -> Path | None:
    """Return the folder of `initdb` and `postgres`: Debian's, or those of the package `pgserver`."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    package = find_spec("pgserver")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "pginstall" / "bin"
    return folder if (folder / "initdb").exists() else None


class PostgresServer:
    """A server that can be stopped, killed and started again with the same data."""

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self._settings = SETTINGS if durable else {**SETTINGS, **NOT_DURABLE}
        found = binaries()
        assert found is not None
        self._bin = found if os.geteuid() else _readable(found, directory)
        self._data = directory / "data"
        self._data.mkdir(mode=0o700)
        #: PostgreSQL refuses to run as root.
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self._data, self._user.pw_uid, self._user.pw_gid)
        self._run(
            "initdb", "--username", USER, "--auth=trust", "--encoding=UTF8", "--no-sync", "--locale=C.UTF-8"
        )
        with socket.create_server((HOST, 0)) as free:
            self.port = int(free.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def url(self, schema: str = "raymc", port: int | None = None) -> str:
        return f"postgresql://{USER}@{HOST}:{port or self.port}/postgres?schema={schema}"

    def start(self) -> None:
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        command = [self._bin / "postgres", "-D", self._data, "-p", str(self.port), *settings]

        def answers() -> bool:
            if self._process is None or self._process.poll() is not None:
                # After a kill its former processes end a little later, and it refuses to start beside them.
                with (self._data.parent / "log").open("ab") as log:
                    self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_user())
            return self._answers()

        until(answers, told=lambda: "PostgreSQL does not answer; see its log")

    def stop(self) -> None:
        """Stop it at once, as an administrator would restart it: connections are cut."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill it, so that it has to recover."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(PATIENCE_S)

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.url().partition("?")[0], connect_timeout=5).close()
            return True
        return False

    def _run(self, program: str, *words: str) -> None:
        command = [self._bin / program, "-D", self._data, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, **self._as_user())
        assert done.returncode == 0, done.stdout + done.stderr

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": [], "cwd": "/"}


def _readable(folder: Path, directory: Path) -> Path:
    """Return programs that every user can start: a package may be installed below the home of root."""
    if folder.is_relative_to("/usr"):
        return folder
    package, copy = folder.parent.parent, directory / "package"
    shutil.copytree(package / "pginstall", copy / "pgserver" / "pginstall", symlinks=True)
    libraries = package.with_name("pgserver.libs")  # where its programs look for them
    if libraries.is_dir():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    return copy / "pgserver" / "pginstall" / "bin"


@contextmanager
def a_postgres(*, durable: bool = True) -> Iterator[PostgresServer]:
    """Run a server while the block runs. One that is not durable is faster, and must not be killed."""
    if binaries() is None:  # pgserver has no wheel for Python 3.13
        pytest.skip("NOT TESTED: no PostgreSQL here; install Debian's postgresql, or the package pgserver")
    # Not pytest's own directory: the server's user must be able to enter it.
    directory = Path(tempfile.mkdtemp(prefix="raymc-postgres-"))
    directory.chmod(0o755)
    server = None
    try:
        server = PostgresServer(directory, durable=durable)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(directory, ignore_errors=True)
