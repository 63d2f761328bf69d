"""To which names this server answers, and from which pages a browser may call it.

A page of a stranger can let its own name point to this machine (DNS rebinding) and would then pass for one of
ours: its requests tell by their `Host`. Whatever else a page sends across sites tells by its `Origin`.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Sequence

from starlette.types import Scope

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:/@\s]+)(?::[0-9]{1,5})?")
#: What browsers say of requests by pages that were not served here, whether or not they name the page.
_OTHER_SITES = frozenset({"cross-site", "same-site"})
_ORIGIN = re.compile(r"https?://(?P<host>[^/?#\s]+)")


class AllowList:
    """The names and origins that are taken for ours."""

    def __init__(
        self, *, bind: str, hosts: Collection[str], origins: Collection[str], own_name: str | None = None
    ) -> None:
        own = socket.gethostname() if own_name is None else own_name
        known = {"localhost", bind, own, own.partition(".")[0], *hosts}
        self._names = frozenset(_bare(name) for name in known if name and not name.startswith("*."))
        self._endings = tuple(name[1:].lower() for name in hosts if name.startswith("*."))
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Say with which status and why a request is refused; None: its names are ours."""
        hosts = _values(scope, b"host")
        for host in hosts:
            if not self._is_ours(host):
                return 421, (
                    f"this server does not answer to the name {host[:100]!r}; whoever runs it can allow it: "
                    "raymc serve --allowed-host NAME"
                )
        origins = _values(scope, b"origin")
        if not origins and _crosses_sites(scope):
            return 403, "pages of other sites may not change anything here"
        for origin in origins:
            if origin.lower() not in self._origins and not _same(origin, hosts):
                return 403, (
                    f"pages of {origin[:100]!r} may not call this server; whoever runs it can allow it: "
                    "raymc serve --allowed-origin URL"
                )
        return None

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = _bare(found["name"])
        # An address is no name that somebody else could let point to this machine.
        return name in self._names or _is_address(name) or name.endswith((".localhost", *self._endings))


def _crosses_sites(scope: Scope) -> bool:
    """Tell whether a page of another site wants to change something, as its browser says."""
    says = {value.strip().lower() for value in _values(scope, b"sec-fetch-site")}
    return scope.get("method") not in {None, "GET", "HEAD", "OPTIONS"} and bool(says & _OTHER_SITES)


def _same(origin: str, hosts: Sequence[str]) -> bool:
    """Tell whether a page was served under the name that is asked for now, which is one of ours."""
    found = _ORIGIN.fullmatch(origin)
    return found is not None and [found["host"].lower()] == [host.lower() for host in hosts]


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header]


def _bare(name: str) -> str:
    return name.lower().rstrip(".").removeprefix("[").removesuffix("]")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
