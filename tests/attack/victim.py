"""A `raymc serve` in a process of its own, with tokens, and meters of what an attack costs it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from tests.support.raymc import environment
from tests.support.serve_process import ServeProcess
from tests.support.waiting import PATIENCE_S, until

from ray_multicluster_scheduler.config import parse_config
from ray_multicluster_scheduler.config.find import state_dir
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.service.caller import Caller, Role

CLUSTERS = "clusters:\n  a:\n    head_address: 127.0.0.1:1\n    max_resources: {CPU: 64}\n"
MIB = 2**20
#: Before an attack, a server has this much to do with itself: probes, its lease, its timers.
IDLE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Victim:
    """A server at work."""

    pid: int
    port: int
    client_port: int
    #: One token of the user `ann` for each of these roles.
    tokens: dict[str, str]
    log: Path

    @property
    def cpu_s(self) -> float:
        """The processor time that the server and its scheduler have used."""
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self._pids]
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")

    @property
    def peak_bytes(self) -> int:
        """The most memory that the server had since it began, or since the last `cost`."""
        return self._status("VmHWM")

    @property
    def bytes_now(self) -> int:
        """The memory that the server has."""
        return self._status("VmRSS")

    @property
    def tracebacks(self) -> list[str]:
        """What its log says of errors that nobody expected."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if "Traceback" in line or "never retrieved" in line]

    @property
    def _pids(self) -> list[int]:
        """The server, and the scheduler that it has started."""
        started = [path.read_text() for path in Path(f"/proc/{self.pid}/task").glob("*/children")]
        return [self.pid, *map(int, " ".join(started).split())]

    def _status(self, name: str) -> int:
        lines = [line for pid in self._pids for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024

    @contextmanager
    def costs_at_most(self, *, cpu_s: float, mib: int) -> Iterator[None]:
        """Bound what the server spends on what happens in this block."""
        for pid in self._pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
        before_s, before_bytes = self.cpu_s, self.bytes_now
        yield
        assert self.cpu_s - before_s <= cpu_s + IDLE_S
        assert self.peak_bytes - before_bytes <= mib * MIB

    def connect(self, port: int | None = None) -> socket.socket:
        """Open a connection, to the HTTP port unless another one is named."""
        return socket.create_connection(("127.0.0.1", port or self.port), timeout=PATIENCE_S)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """Ask over a connection of its own; return the status and all of the answer."""
        with closing(self.connect()) as peer:
            peer.sendall(request(method, path, body, **headers))
            answer = b""
            while part := peer.recv(65536):
                answer += part
        return int(answer.split(b" ", 2)[1]), answer

    def bearer(self, role: str) -> str:
        """Return the header that shows the token of a role."""
        return f"Bearer {self.tokens[role]}"


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a request whose answer ends the connection; `_` in the name of a header is `-`."""
    given = {"Host": "localhost", "Connection": "close", "Content-Length": str(len(body))}
    given.update({name.replace("_", "-"): value for name, value in headers.items()})
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode() + body


@contextmanager
def victim(folder: Path, *options: str) -> Iterator[Victim]:
    """Serve on loopback until the block ends."""
    config = folder / "clusters.yaml"
    config.write_text(CLUSTERS)
    environ = environment(RAY_MULTICLUSTER_HOME=str(folder / "home"), RAY_MULTICLUSTER_USER="root")
    tokens = _make_tokens(config, environ)
    server = ServeProcess(folder, config, environ, *options, clients=True)
    try:
        port, client_port = (int(at.rpartition(":")[2]) for at in (server.address, server.client_address))
        running = Victim(
            pid=server.process.pid, tokens=tokens, log=server.log, port=port, client_port=client_port
        )
        until(lambda: running.ask("GET", "/readyz")[0] == HTTPStatus.OK)  # its scheduler begins
        for path in ("/healthz", "/openapi.json", "/api/v1/jobs"):  # what the first request costs more
            running.ask("GET", path, authorization=running.bearer("read"))
        yield running
        assert server.process.poll() is None, server.log.read_text()
    finally:
        server.stop(code=None)


def _make_tokens(config: Path, environ: Mapping[str, str]) -> dict[str, str]:
    root = Caller(user="root", role=Role.ADMIN)
    directory = state_dir(config, environ)
    scheduler = EmbeddedScheduler(parse_config(CLUSTERS, config), directory=directory, environ={})
    try:
        roles = [Role.READ, Role.SUBMIT, Role.ADMIN]
        return {
            role.word: scheduler.tokens.create("ann", role, by=root, expires_s=None).token for role in roles
        }
    finally:
        scheduler.stop()
