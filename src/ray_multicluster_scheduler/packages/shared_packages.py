"""A place for packages that schedulers on several machines share, as a protocol."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, Protocol

from ray_multicluster_scheduler.errors import InvalidRequest

#: Allowed names of packages: never with a slash or a leading dot, because they become paths.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]*\.(zip|whl|tar\.gz|tar\.xz)", re.ASCII)
#: Each use within this time is noted only once: a hundred jobs a second may use the same package.
NOTED_EVERY_S = 600.0
#: What was begun so long ago, and not written to since, will never be finished.
HALF_WRITTEN_S = 86_400.0


class SharedPackages(Protocol):
    """Packages by name. Safe for several threads, processes and machines at once.

    A package is there as a whole or not at all, and its content never changes. Errors of the place are
    `StoreError`s. Times of use may be up to `NOTED_EVERY_S` too early.
    """

    def put(self, name: str, path: Path) -> None:
        """Keep a copy of a file; it is durable when this returns. A package that is there is only touched."""

    def fetch(self, name: str, into: IO[bytes]) -> bool:
        """Write a package to a file; False: it is not there, and the file may hold a part of it."""

    def touch(self, name: str) -> bool:
        """Tell whether a package is there, and note that it is used."""

    def last_used(self) -> dict[str, float]:
        """Return all packages, each with the time of its last use."""

    def remove(self, name: str, *, unused_for_s: float) -> bool:
        """Remove a package unless it was used in this time; tell whether it was removed."""

    def remove_leftovers(self) -> None:
        """Remove what writers that have ended left unfinished."""


def is_name(name: str) -> bool:
    """Tell whether this may be the name of a package."""
    return NAME.fullmatch(name) is not None


def require_name(name: str) -> None:
    """Refuse a name that no package can have."""
    if not is_name(name):
        raise InvalidRequest(f"{name[:200]!r} is not the name of a package")
