"""What an environment asks of a cluster beyond packages, and what a cluster could not set up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNeeds:
    """What an environment asks of the cluster's own Ray. Empty for most."""

    #: Requirements of `ray` itself, as they were written and as pip's version specifiers.
    pins: tuple[tuple[str, str], ...] = ()
    #: Options that older Rays ignore without a word.
    options: tuple[str, ...] = ()
    #: It brings a Python of its own (conda, an image), or an installer: then the cluster's do not count.
    own_python: bool = False
    own_installer: bool = False

    def __bool__(self) -> bool:
        """Tell whether there is anything that a Ray could lack."""
        return bool(self.pins or self.options)


NO_NEEDS = RayNeeds()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSetup:
    """An environment that a cluster could not set up, in a way that a retry there does not change."""

    #: How the last attempt there ended, in pip's or conda's own words, without secrets.
    reason: str
    #: It is tried there again from then on (wall clock).
    until: float
    #: The cluster's incarnation, and a digest of its own part of the environment: others may do better.
    session_name: str | None
    cluster_env: str
