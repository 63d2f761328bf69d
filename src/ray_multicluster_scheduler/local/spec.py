"""The cluster that a user wants (`HeadSpec`), and the head that was started for it (`Head`)."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from ray_multicluster_scheduler.errors import InvalidRequest, SandboxError
from ray_multicluster_scheduler.model.resources import parse_requirements

# The ports of a head, and finding free ones without a race between two sandboxes.


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


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")


class Phase(str, Enum):
    """The progress of the start of a head."""

    WAITING = "waiting for another `raymc local` to finish"
    STARTING = "starting"
    READY = "ready"


class HeadState(str, Enum):
    """The current state of a head."""

    RUNNING = "running"
    #: Processes are there but the dashboard does not answer: still starting, overloaded, or damaged.
    SILENT = "not answering"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """One wanted cluster: a single Ray head. GPUs are logical: Ray counts them, nothing checks them."""

    name: str
    cpus: int = 4
    gpus: int = 0
    #: Bytes of Ray's logical `memory` resource; None: Ray takes what the machine has.
    memory: int | None = None
    #: Custom resources, such as `{"rack": 1}`.
    resources: Mapping[str, float] | None = None
    tags: tuple[str, ...] = ()
    #: Written to the generated clusters.yaml as this cluster's environment.
    runtime_env: Mapping[str, Any] | None = None
    #: With a token the head refuses every call that does not carry it.
    token: str | None = field(default=None, repr=False)
    #: Another interpreter that has Ray, for mixed versions; None: the one that runs this.
    python: str | None = None
    #: Extra environment of the head, such as `{"RAY_enable_autoscaler_v2": "1"}`.
    env: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidRequest(
                f"{self.name!r} cannot name a cluster: use letters, digits, '_', '.' and '-', at most 63"
            )
        for what, amount in (("CPUs", self.cpus), ("GPUs", self.gpus), ("memory", self.memory or 0)):
            if isinstance(amount, bool) or not isinstance(amount, int) or amount < 0:
                raise InvalidRequest(
                    f"cluster {self.name!r}: {what} must be a whole number of 0 or more, not {amount!r}"
                )
        if self.python is not None and not Path(self.python).is_absolute():
            raise InvalidRequest(
                f"cluster {self.name!r}: give the interpreter's full path, not {self.python!r}"
            )
        parse_requirements(self.resources, name="resources")

    @property
    def token_variable(self) -> str | None:
        """Name the environment variable that carries the token; None for a head without one."""
        return _token_variable(self.name) if self.token is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """One head of a sandbox: where it listens and where it keeps its files."""

    name: str
    ports: Ports
    #: Ray's own directory, in /tmp because the paths of Ray's sockets must be short.
    temp_dir: Path
    #: Process group and session of the head's own processes; None until it was started.
    pgid: int | None = None

    @property
    def ip(self) -> str:
        """The address that all of this head's ports are on."""
        return LOOPBACK

    @property
    def mark(self) -> str:
        """The mark of the processes of this head (see processes.py)."""
        return str(self.temp_dir)

    @property
    def log(self) -> Path:
        """The output of `ray start`. The other logs are below `temp_dir`."""
        return self.temp_dir.with_suffix(".log")

    @property
    def dashboard(self) -> str:
        """Base URL of the dashboard, which serves jobs, nodes and usage."""
        return f"http://{LOOPBACK}:{self.ports.dashboard}"

    @property
    def client_address(self) -> str:
        """`host:port` of Ray Client, without the `ray://`."""
        return f"{LOOPBACK}:{self.ports.client}"

    @property
    def gcs_address(self) -> str:
        """`host:port` of the GCS, for code in the head's own jobs; a driver outside uses `client_address`."""
        return f"{LOOPBACK}:{self.ports.gcs}"


def check_heads(specs: Sequence[HeadSpec]) -> None:
    """Refuse an empty sandbox, and two names that would share a cluster or a token variable."""
    if not specs:
        raise InvalidRequest("a sandbox needs at least one cluster")
    name_by_variable: dict[str, str] = {}
    for spec in specs:
        variable = _token_variable(spec.name)
        if variable in name_by_variable:
            raise InvalidRequest(
                f"the cluster names {name_by_variable[variable]!r} and {spec.name!r} must differ in letters "
                "or digits"
            )
        name_by_variable[variable] = spec.name


def _token_variable(name: str) -> str:
    return "RAYMC_LOCAL_TOKEN_" + re.sub(r"[^A-Za-z0-9]", "_", name).upper()
