"""The packages that a server keeps, over HTTP."""

from __future__ import annotations

from pathlib import Path

from ray_multicluster_scheduler.client.transport import Call, Transport, part


class ServerPackages:
    """The packages that the server keeps."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def has(self, name: str) -> bool:
        """Tell whether a package is kept."""
        return self._transport.exists(Call(method="GET", path=_package(name)))

    def put(self, name: str, content: Path) -> None:
        """Keep a package file. Its name is derived from its content."""
        kind = {"Content-Type": "application/octet-stream"}
        self._transport.ask(Call(method="PUT", path=_package(name), body=content, headers=kind))


def _package(name: str) -> str:
    return f"/api/packages/gcs/{part(name)}"
