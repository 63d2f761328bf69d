"""A real pgbouncer on loopback: each transaction of a client may run on another connection of the server."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from tests.support.postgres import HOST, PATIENCE_S, USER, PostgresServer
from tests.support.waiting import until

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
#: Fewer connections than there are threads and stores in a test, so that they are shared.
SERVER_CONNECTIONS = 3
_SETTINGS = """
[databases]
postgres = host={host} port={port} dbname=postgres
[pgbouncer]
listen_addr = {host}
listen_port = {own_port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
"""


@contextmanager
def a_pooler(server: PostgresServer) -> Iterator[int]:
    """Run pgbouncer in front of a server while the block runs; yields its port."""
    folder = Path(tempfile.mkdtemp(prefix="raymc-pgbouncer-"))
    folder.chmod(0o755)
    with socket.create_server((HOST, 0)) as free:
        own_port = int(free.getsockname()[1])
    users = folder / "users.txt"
    users.write_text(f'"{USER}" ""\n')
    settings = _SETTINGS.format(
        host=HOST, port=server.port, own_port=own_port, users=users, size=SERVER_CONNECTIONS
    )
    (folder / "pgbouncer.ini").write_text(settings)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(PGBOUNCER), str(folder / "pgbouncer.ini")], stdout=log, stderr=log, **_not_root()
        )
    try:
        url, log = server.url(port=own_port).partition("?")[0], folder / "log"
        until(lambda: _answers(url, process, log), told=log.read_text)
        yield own_port
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)


def _not_root() -> dict[str, Any]:
    """Pgbouncer refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": [], "cwd": "/"}


def _answers(url: str, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    with suppress(psycopg.OperationalError):
        psycopg.connect(url, connect_timeout=5).close()
        return True
    return False
