"""The token of a cluster on its way to it over Ray Client."""

from __future__ import annotations

import os

from ray_multicluster_scheduler.tasks.wire.session_check import is_loopback


class Secret:
    """A token that no log shows."""

    def __init__(self, value: str | None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "<secret>" if self.value else "<none>"


class TokenInTheClear(ValueError):
    """The token must not be sent the way that Ray Client would send it."""


def auth_metadata(
    token: Secret, *, cluster: str, address: str, over_https: bool
) -> list[tuple[str, str]] | None:
    """Return what carries the token in the calls of Ray Client.

    Whoever protects the dashboard by https does not expect the same token to be sent where anybody on the way
    can read it. Ray Client encrypts only with `RAY_USE_TLS`, in the process that connects.
    """
    if token.value is None:
        return None
    encrypts = os.environ.get("RAY_USE_TLS", "0").lower() in {"1", "true"}
    if over_https and not encrypts and not is_loopback(address):
        raise TokenInTheClear(
            f"the dashboard of cluster {cluster!r} is used over https, and Ray Client would send its token "
            f"unencrypted to {address}; set RAY_USE_TLS=1 and Ray's certificates here, or use jobs instead "
            "of tasks and actors"
        )
    return [("authorization", f"Bearer {token.value}")]
