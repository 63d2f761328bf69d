"""The address of our own server, as people write it."""

from __future__ import annotations

from urllib.parse import urlsplit


def server_url(value: str) -> str:
    """Return `http://host:port` without a slash at its end; a path in front of the server may stay."""
    try:
        url = urlsplit(value.strip())
        port = url.port
    except ValueError:
        url, port = urlsplit(""), None
    if url.username is not None or url.password is not None:
        raise ValueError(
            "expected a URL without user:password@; a token belongs in RAY_MULTICLUSTER_TOKEN or in a file"
        )
    if url.scheme not in {"http", "https"} or not url.hostname or port == 0 or url.query or url.fragment:
        raise ValueError(f"expected a URL such as http://127.0.0.1:8700, found {value[:200]!r}")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return f"{url.scheme}://{host}{'' if port is None else f':{port}'}{url.path.rstrip('/')}"
