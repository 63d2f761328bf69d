"""The state of TCP ports, without any data: a Ray Client session would start a process on the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ray_multicluster_scheduler.asyncio_tools import both, within
from ray_multicluster_scheduler.cluster_health.diagnosis import PortState
from ray_multicluster_scheduler.model.cluster import ClusterSpec

_DASHBOARD, _SESSION = "/dashboard/dashboard.py ", re.compile(r" --session-dir=\S*/([^\s/]+)(?!\S)")
_CLIENT_SERVER, _ADDRESS = " ray.util.client.server ", re.compile(r" --address=(\S+)")
_GCS_ADDRESS = re.compile(r" --gcs-address=(\S+)")
_PORT = re.compile(r" --port=(\d+)")

HeadPorts = Callable[[], Awaitable[Collection[int]]]


async def port_state(
    host: str, port: int, *, timeout_s: float, head_ports: HeadPorts | None = None
) -> PortState:
    """Return the state of a port: open a connection and close it at once.

    `head_ports` returns the ports of the head itself, if it is on this machine. With it, another port that is
    open on a loopback address is FORWARDED.
    """
    try:
        peer = await within(timeout_s, _peer_of(host, port))
    except ConnectionRefusedError:
        return PortState.REFUSED
    except (OSError, UnicodeError, asyncio.TimeoutError):
        return PortState.SILENT
    if head_ports is None or (peer is not None and not _is_loopback(peer[0])):
        return PortState.OPEN
    return PortState.OPEN if port in await head_ports() else PortState.FORWARDED


async def _peer_of(host: str, port: int) -> tuple[Any, ...] | None:
    """Connect and close at once; return the address of the other side. Leaves nothing open if cancelled."""
    _, writer = await asyncio.open_connection(host, port)
    peer: tuple[Any, ...] | None = writer.get_extra_info("peername")
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return peer


async def head_state(
    spec: ClusterSpec, head_ports: HeadPorts, *, timeout_s: float
) -> tuple[PortState, PortState]:
    """Return the states of a head's `dashboard` and `head_address`, told from tunnels of this machine."""
    url = urlsplit(spec.dashboard)
    dashboard = url.hostname or "", url.port or (443 if spec.is_over_https else 80)
    return await both(
        port_state(*dashboard, timeout_s=timeout_s, head_ports=head_ports),
        port_state(*spec.head, timeout_s=timeout_s, head_ports=head_ports),
    )


def _is_loopback(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def head_ports_here(session_name: str) -> Collection[int]:
    """Return the dashboard and client ports of a head, if its processes are on this machine."""
    return ports_of_head(_command_lines(), session_name)


def ports_of_head(commands: Iterable[str], session_name: str) -> frozenset[int]:
    """Pick the dashboard and the client port of a head from command lines.

    The dashboard names its session, and a client server the GCS that the dashboard names too.
    """
    listed = list(commands)
    dashboards = [c for c in listed if _DASHBOARD in c]
    of_session = [c for c in dashboards if (found := _SESSION.search(c)) and found[1] == session_name]
    gcs = {found[1] for command in of_session if (found := _GCS_ADDRESS.search(command))}
    clients = [c for c in listed if _CLIENT_SERVER in c]
    servers = [c for c in clients if (found := _ADDRESS.search(c)) and found[1] in gcs]
    return frozenset(int(found[1]) for c in [*of_session, *servers] if (found := _PORT.search(c)))


def _command_lines() -> list[str]:
    """Return the command line of every process of this machine that can be read."""
    lines: list[str] = []
    if sys.platform == "linux":
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended
                lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return lines
    with contextlib.suppress(OSError):  # there is no `ps`
        ps = ["ps", "-A", "-ww", "-o", "command="]
        listing = subprocess.run(ps, capture_output=True, text=True, check=False, errors="replace")
        lines = listing.stdout.splitlines()
    return lines
