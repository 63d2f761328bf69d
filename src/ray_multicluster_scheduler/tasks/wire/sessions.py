"""Sessions of Ray Client: how one authenticates and is retried, and whether it reached the right cluster.

A head gives each session a helper process with its own port, from 23000 on. The head finds a free port and
releases it, and the helper binds it seconds later. Two heads on one machine that start a session at the same
time may choose the same port: then one of the two sessions silently works on the other cluster. So every
session is checked before it is used, and a wrong one is closed.
"""

from __future__ import annotations

import json
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import ray
from ray.experimental.internal_kv import _internal_kv_get
from ray.util.client.worker import grpc  # not a dependency of ours, but Ray Client has it

#: Prefix of the variables that we set in the environment of a session.
VARIABLE_PREFIX = "RAY_MULTICLUSTER_"
#: The process that listens on this loopback port may start a session. Not an ephemeral port.
GATE_PORT = 32_600
#: Installing the environment of a session may take minutes: the next session does not wait so long.
GATE_TIMEOUT_S = 20.0


class WrongCluster(ConnectionError):
    """The session is on another cluster, or has another environment, than requested."""


def check_session(cluster: str, session_name: str | None, runtime_env: Mapping[str, Any]) -> None:
    """Raise `WrongCluster` unless the present session is on this cluster and has this environment.

    `session_name` is from the cluster's dashboard; None if unknown. Two sessions in one helper process have
    the environment of the first one, so our own variables are compared too.
    """
    with loss_as_connection_error():
        reached = (_internal_kv_get(b"session_name", namespace=b"session") or b"").decode()
        session_env = ray.get_runtime_context().runtime_env
    if session_name is not None and reached and reached != session_name:
        raise WrongCluster(
            f"Ray Client has reached the session {reached!r}, and the dashboard of cluster {cluster!r} says "
            f"{session_name!r}: do head_address and dashboard name the same cluster?"
        )
    env = json.loads(session_env) if isinstance(session_env, str) else session_env
    if _our_variables(env) != _our_variables(runtime_env):
        raise WrongCluster(
            f"the session on cluster {cluster!r} has the environment of another program: "
            f"{_our_variables(env)}"
        )


def is_loopback(address: str) -> bool:
    """Tell whether `host:port` is a loopback address."""
    host = address.rpartition(":")[0]
    return host in {"localhost", "[::1]"} or host.startswith("127.")


@contextmanager
def session_gate(address: str) -> Iterator[None]:
    """Start sessions on loopback addresses one after the other.

    Only there may several heads share the machine, as in a sandbox. The wait is limited: the gate saves
    retries, and `check_session` is the guarantee.
    """
    if not is_loopback(address):
        yield
        return
    ends_at = time.monotonic() + GATE_TIMEOUT_S
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as gate:
        while time.monotonic() < ends_at:
            with suppress(OSError):
                gate.bind(("127.0.0.1", GATE_PORT))
                gate.listen(1)
                break
            time.sleep(0.05 + 0.1 * random.Random().random())  # noqa: S311 - no secret; not the program's generator
        yield


@contextmanager
def loss_as_connection_error() -> Iterator[None]:
    """Raise `ConnectionError` if the session is lost during the check: then it is tried again."""
    try:
        yield
    except grpc.RpcError as problem:
        raise ConnectionError(f"the session was lost at once: {problem}") from problem


def _our_variables(runtime_env: Mapping[str, Any]) -> dict[str, str]:
    env_vars = runtime_env.get("env_vars") or {}
    return {name: value for name, value in env_vars.items() if name.startswith(VARIABLE_PREFIX)}


_SIGTERM = "SIGTERM handler is not set because current thread"
#: Logger, and the beginning of its useless message: Ray logs it about correct calls.
NOISE = {
    "ray.client_builder": "Passing the following kwargs to ray.init() on the server",
    "ray._private.worker": _SIGTERM,
    # The helper process on the cluster logs the same, and Ray Client repeats it here.
    "ray.util.client.logsclient": _SIGTERM,
}


def is_useful(record: logging.LogRecord) -> bool:
    """Tell whether a message is not noise."""
    return not record.getMessage().startswith(NOISE[record.name])


def drop_noise() -> None:
    """Drop the messages in `NOISE`, and no others, in this process."""
    for name in NOISE:
        logging.getLogger(name).addFilter(is_useful)


def silence_ray_client() -> None:
    """Disable the loggers of Ray Client, and no others: for a process that is not the user's.

    Its messages, for example about reconnects, would reach the user's output as those of a worker.
    """
    drop_noise()
    logging.getLogger("ray.util.client").setLevel(logging.CRITICAL + 1)
    logging.getLogger("ray.util.client.logsclient").addFilter(_nothing)


def _nothing(_record: logging.LogRecord) -> bool:
    return False


T = TypeVar("T")

CONNECT_TIMEOUT_S = 120.0
CONNECT_PAUSE_S = 2.0
#: Tries that may reach a wrong cluster; after that it is no coincidence.
WRONG_TRIES = 6
#: Raised by Ray Client if a session cannot be started.
NOT_CONNECTED = (ConnectionError, RuntimeError)
#: Ray Client's message if the environment of a session cannot be set up: no retry would help.
BAD_ENVIRONMENT = "Failed to create runtime_env"


def connect_with_retries(
    connect: Callable[[], T], *, timeout_s: float = CONNECT_TIMEOUT_S, pause_s: float = CONNECT_PAUSE_S
) -> T:
    """Connect, and retry until `timeout_s` have passed; then raise the last error.

    Pauses are random: two clients that reached each other's cluster must not retry at the same moment.
    """
    ends_at, wrong = time.monotonic() + timeout_s, 0
    while True:
        try:
            return connect()
        except NOT_CONNECTED as problem:
            wrong += isinstance(problem, WrongCluster)
            if BAD_ENVIRONMENT in str(problem) or wrong >= WRONG_TRIES or time.monotonic() >= ends_at:
                raise
            time.sleep(pause_s * (0.5 + random.Random().random()))  # noqa: S311 - no secret; not the program's generator


class Secret:
    """A token that is never shown in a `repr` or a log."""

    def __init__(self, value: str | None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "<secret>" if self.value else "<none>"


class TokenInTheClear(ValueError):
    """Ray Client would send the token unencrypted."""


def auth_metadata(
    token: Secret, *, cluster: str, address: str, over_https: bool
) -> list[tuple[str, str]] | None:
    """Return the gRPC metadata with the token, or None without a token.

    A token that is used over https must not be sent unencrypted elsewhere. Ray Client encrypts only if
    `RAY_USE_TLS` is set in the process that connects.
    """
    if token.value is None:
        return None
    encrypts = os.environ.get("RAY_USE_TLS", "0").lower() in {"1", "true"}
    if over_https and not encrypts and not is_loopback(address):
        raise TokenInTheClear(
            f"the dashboard of cluster {cluster!r} is used over https, and Ray Client would send its token "
            f"unencrypted to {address}; set RAY_USE_TLS=1 and Ray's certificates here, or use jobs instead"
        )
    return [("authorization", f"Bearer {token.value}")]
