"""Authentication of Ray Client sessions by the token of the cluster."""

from __future__ import annotations

import os

from ray_multicluster_scheduler.tasks.wire.session_check import is_loopback


class Secret:
    """A token that is never shown in a `repr` or a log."""

    def __init__(self, value: str | None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "<secret>" if self.value else "<none>"


class TokenInTheClear(ValueError):
    """Ray Client would send the token unencrypted."""


def auth_metadata(
    token: Secret, *, cluster: str, address: str, over_https: bool
) -> list[tuple[str, str]] | None:
    """Return the gRPC metadata with the token, or None without a token.

    A token that is used over https must not be sent unencrypted elsewhere. Ray Client encrypts only if
    `RAY_USE_TLS` is set in the process that connects.
    """
    if token.value is None:
        return None
    encrypts = os.environ.get("RAY_USE_TLS", "0").lower() in {"1", "true"}
    if over_https and not encrypts and not is_loopback(address):
        raise TokenInTheClear(
            f"the dashboard of cluster {cluster!r} is used over https, and Ray Client would send its token "
            f"unencrypted to {address}; set RAY_USE_TLS=1 and Ray's certificates here, or use jobs instead"
        )
    return [("authorization", f"Bearer {token.value}")]
