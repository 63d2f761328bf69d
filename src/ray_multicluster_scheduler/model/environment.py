"""Requirements of an environment on a cluster's Ray, and environments that a cluster failed to set up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNeeds:
    """Requirements of an environment on the cluster's Ray. Empty for most environments."""

    #: Requirements of `ray` itself: the text that the user wrote, and pip's version specifier.
    pins: tuple[tuple[str, str], ...] = ()
    #: Options that older versions of Ray silently ignore.
    options: tuple[str, ...] = ()
    #: It brings its own Python (conda, an image) or installer, which replaces that of the cluster.
    own_python: bool = False
    own_installer: bool = False

    def __bool__(self) -> bool:
        """Tell whether there is any requirement."""
        return bool(self.pins or self.options)


NO_NEEDS = RayNeeds()


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSetup:
    """An environment that a cluster could not set up, and where a retry there would not help."""

    #: The error of pip or conda in the last attempt there, without secrets.
    reason: str
    #: It is tried there again after this time (wall clock).
    until: float
    #: The cluster's Ray session and a digest of the cluster's own environment: after a change of either,
    #: the setup may work.
    session_name: str | None
    cluster_env: str
