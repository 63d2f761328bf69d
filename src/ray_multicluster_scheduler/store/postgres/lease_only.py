"""Holders of the lease on other machines: whether they live, only their lease tells."""

from __future__ import annotations


class LeaseOnly:
    """`backend.HolderLiveness` that knows nothing: a lease is free when it is released or has expired."""

    def announce(self, holder: str) -> None:
        """Do nothing."""

    def withdraw(self, holder: str) -> None:
        """Do nothing."""

    def is_dead(self, holder: str) -> bool:  # noqa: ARG002
        """Return False: not known."""
        return False

    def tidy(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
