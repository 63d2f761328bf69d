"""Requests to our own REST interface of a server, as the transport takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from ray_multicluster_scheduler.client.transport import Call

ROOT = "/api/v1"


def get(path: str, **asked: Any) -> Call:
    """Return a question; what is None is not asked for, and a list is asked for by each of its words."""
    query = [
        (name, str(each))
        for name, value in asked.items()
        if value is not None
        for each in (value if isinstance(value, list) else [value])
    ]
    return Call(method="GET", path=path_of(path), query=query)


def post(path: str, body: Mapping[str, Any], *, repeatable: bool = True) -> Call:
    """Return a request with a body."""
    return Call(method="POST", path=path_of(path), body=to_json(body), repeatable=repeatable)


def path_of(path: str) -> str:
    """Return the whole path of a route."""
    return ROOT + path
