"""The ports of a head, and finding free ones without a race between two sandboxes."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from dataclasses import dataclass, fields

from ray_multicluster_scheduler.errors import SandboxError

#: The address of every head: only with this one does Ray bind all of its sockets to loopback.
LOOPBACK = "127.0.0.1"
#: Below the ports that Linux and macOS give to outgoing connections, above Ray's usual worker ports.
FIRST, LAST = 20_000, 32_499
#: Ports per head: a few for services, the others for workers and drivers, which bind one each.
BLOCK = 500
_SERVICES = 20


@dataclass(frozen=True, slots=True)
class Ports:
    """A block of consecutive ports that belongs to one head."""

    #: Only a sandbox that is about to use the block listens here.
    base: int
    #: What `RAY_ADDRESS` names inside a job.
    gcs: int
    #: Ray's HTTP API.
    dashboard: int
    #: Ray Client (`ray://`).
    client: int
    agent_http: int
    agent_grpc: int
    runtime_env_agent: int
    node_manager: int
    object_manager: int
    node_metrics: int
    #: These two have fixed defaults in Ray, which would clash between heads.
    autoscaler_metrics: int
    dashboard_metrics: int

    @classmethod
    def at(cls, base: int) -> Ports:
        """Lay the block out from its first port."""
        return cls(*range(base, base + len(fields(cls))))

    @property
    def workers(self) -> range:
        """The ports that Ray gives to workers and drivers."""
        return range(self.base + _SERVICES, self.base + BLOCK)


class PortClaims(ExitStack):
    """Holds blocks of ports against other sandboxes until the heads have bound their own ports.

    A claim is a listening socket on the first port of the block: making one is atomic between
    processes, and it vanishes with the process that made it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: set[int] = set()

    def hold_new(self) -> Ports:
        """Claim a block whose ports are all free."""
        bases = list(range(FIRST, LAST - BLOCK + 2, BLOCK))
        random.SystemRandom().shuffle(bases)
        for base in bases:
            if self._claim(base) and not _first_taken(range(base + 1, base + BLOCK)):
                return Ports.at(base)
        raise SandboxError(
            f"there are no {BLOCK} consecutive free ports between {FIRST} and {LAST}; "
            "stop another sandbox or the programs that listen there"
        )

    def hold(self, ports: Ports) -> None:
        """Claim the block that a head had before, or say which port is taken now."""
        if ports.base in self._held:
            return
        claimed = self._claim(ports.base)
        busy = _first_taken(range(ports.base + 1, ports.base + _SERVICES)) if claimed else ports.base
        if busy:
            raise SandboxError(
                f"port {busy} of {LOOPBACK}, which this cluster had before, is taken by another program; "
                "stop that program, or run `raymc local down` and `raymc local up` to get other ports"
            )

    def _claim(self, base: int) -> bool:
        marker = self.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        try:
            marker.bind((LOOPBACK, base))
            marker.listen(1)
        except OSError:
            return False
        self._held.add(base)
        return True


def _first_taken(ports: range) -> int | None:
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # Connections of an earlier head that linger in TIME_WAIT do not make a port taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                return port
    return None
