"""What the store knows about packages: their contents, and who has uploaded what under which name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPackage:
    """A package in the store. Its bytes are read chunk by chunk."""

    id: int
    size: int
    #: They are numbered from 0.
    chunks: int
    used_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A name that a user has chosen, and the package that it refers to."""

    user: str
    name: str
    #: The name of a package, which says what is inside.
    content: str
    size: int
    used_at: float
