"""Refusing a request before it reaches a route: in our own shape, or as Ray does where its clients ask."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import PlainTextResponse, Response
from starlette.types import Scope

from ray_multicluster_scheduler.server.error_responses import error_body, refusal

#: Paths that are ours; all others are Ray's, also those that neither has.
_OURS = ("/api/v1/", "/docs", "/openapi.json", "/metrics", "/healthz", "/readyz")


def is_ours(path: str) -> bool:
    """Tell whether a path belongs to our own interface."""
    return path.startswith(_OURS)


def refused(
    scope: Scope, status: int, kind: str, sentence: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the refusal in the form that this path's clients read; `kind` is the name of our error."""
    if is_ours(scope["path"]):
        return refusal(status, error_body(kind, sentence), headers)
    return PlainTextResponse(sentence, status, headers=dict(headers or {}))
