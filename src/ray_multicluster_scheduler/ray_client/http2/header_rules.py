"""Which headers may be passed on: what one client sends must not break a connection that others use too."""

from __future__ import annotations

from ray_multicluster_scheduler.ray_client.http2.headers import Headers

_REQUEST = frozenset({":method", ":scheme", ":path", ":authority"})
_REQUIRED = frozenset({":method", ":scheme", ":path"})
#: They belong to HTTP/1 connections.
_FORBIDDEN = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})


def is_request(headers: Headers) -> bool:
    """Tell whether these are the headers of a request."""
    count = 0
    for name, _ in headers:
        if not name.startswith(":"):
            break
        count += 1
    names = {name for name, _ in headers[:count]}
    return len(names) == count and _REQUIRED <= names <= _REQUEST and is_plain(headers[count:])


def is_response(headers: Headers) -> bool:
    """Tell whether these are the first headers of an answer."""
    return bool(headers) and headers[0][0] == ":status" and is_plain(headers[1:])


def is_plain(headers: Headers) -> bool:
    """Tell whether these are headers that may stand at the end of a stream."""
    for name, value in headers:
        if name.startswith(":") or name in _FORBIDDEN or (name == "te" and value != "trailers"):
            return False
    return True
