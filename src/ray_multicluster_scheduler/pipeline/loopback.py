"""Heads that listen on loopback only, such as those of `raymc local`: Ray looks for them at another address.

With its setting for macOS, Ray looks at 127.0.0.1. Ray reads the setting while it is imported.
"""

from __future__ import annotations

import os
import socket

_AS_ON_MACOS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_TIMEOUT_S = 2.0
#: An address reserved for documentation. Nothing is sent: the socket only shows this machine's own address.
_ELSEWHERE = ("192.0.2.1", 9)


def expect_loopback_head(address: str | None) -> None:
    """Allow this process to join a head that listens on loopback only; call it before Ray is imported."""
    host, _, port = (address or "").rpartition(":")
    if not port.isdigit() or not is_loopback(host):
        return
    if _answers(host, int(port)) and not _answers(_own_address(), int(port)):
        os.environ.setdefault(_AS_ON_MACOS, "0")


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address means this machine only."""
    return host == "localhost" or host.startswith("127.")


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return socket.gethostname()
        return str(probe.getsockname()[0])
