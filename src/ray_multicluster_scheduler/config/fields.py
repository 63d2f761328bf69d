"""Checks of single values in clusters.yaml. Each returns the canonical form or says what to write instead."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from ray_multicluster_scheduler.config.document import shown
from ray_multicluster_scheduler.environment.compose import normalise
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv
from ray_multicluster_scheduler.model.resources import parse_requirements

CLIENT_PORT = 10001
DASHBOARD_PORT = 8265

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_HOST_PORT = r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
_ADDRESS = re.compile(rf"(?:ray://)?{_HOST_PORT}/?")
_URL = re.compile(rf"(?P<scheme>https?)://{_HOST_PORT}(?P<path>/[^\s?#]*)?", re.IGNORECASE)
_PLACE = re.compile(r"[A-Za-z][A-Za-z0-9+.:_-]*://\S+")
_PASSWORD = re.compile(r"://[^/@:]*:[^/@]*@")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: A long run of letters and digits, as in every token and in no name that a person would choose.
_RANDOM = re.compile(r"(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{24,}")


def cluster_name(name: str) -> str:
    """Accept a name that is safe in URLs, file names and metric labels."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            "a cluster name starts with a letter (A-Z, a-z), digit or '_' and has at most 63 of these, '.' "
            "and '-', so that it is safe in URLs and file names; "
            f"found {shown(name)}"
        )
    return name


def head_address(value: str) -> str:
    """Return `host:port`. The host is not looked up here; `raymc doctor` does that."""
    match = _ADDRESS.fullmatch(value)
    if not match or not _is_port(match["port"] or CLIENT_PORT):
        raise ValueError(
            f"expected host:port such as 10.0.0.5:{CLIENT_PORT} or ray://head:{CLIENT_PORT}, "
            f"found {shown(value)}"
            + ("; a web address goes under `dashboard`" if value.startswith("http") else "")
        )
    return f"{match['host']}:{match['port'] or CLIENT_PORT}"


def default_dashboard(address: str) -> str:
    """Return the default address of Ray's dashboard."""
    return f"http://{address.rpartition(':')[0]}:{DASHBOARD_PORT}"


def dashboard(value: str) -> str:
    """Return a base URL without a trailing slash; a path in front of Ray (a proxy's) may stay."""
    url = _URL.fullmatch(value)
    if not url and "@" in value:
        raise ValueError("expected a URL without user:password@; a token belongs in `auth_token_env`")
    if not url or not _is_port(url["port"] or DASHBOARD_PORT):
        raise ValueError(f"expected a URL such as http://10.0.0.5:{DASHBOARD_PORT}, found {shown(value)}")
    port = f":{url['port']}" if url["port"] else ""
    return f"{url['scheme'].lower()}://{url['host'].lower()}{port}{(url['path'] or '').rstrip('/')}"


def variable_name(value: str) -> str:
    """Accept the name of an environment variable; a token itself is refused and never repeated."""
    if not _VARIABLE.fullmatch(value) or _RANDOM.search(value):
        raise ValueError(
            "write the NAME of the environment variable that holds the token, such as RAY_TOKEN_MAC; "
            "what was found looks like a token or is no such name, and is not shown"
        )
    return value


def packages_place(value: str) -> str:
    """Accept `database`, or a URL for fsspec; a password in it is refused and never repeated."""
    if _PASSWORD.search(value):
        raise ValueError(
            "expected a URL without user:password@; credentials belong in the environment, or in the "
            "configuration files of the service or of fsspec"
        )
    if value != "database" and not _PLACE.fullmatch(value):
        raise ValueError(
            "expected `database`, or a URL such as s3://bucket/packages or file:///shared/packages, "
            f"found {shown(value)}"
        )
    return value.rstrip("/")


def tag(value: str) -> str:
    """Accept a word that says what a cluster is good for."""
    if not value.strip():
        raise ValueError("a tag must not be empty")
    return value.strip()


def runtime_env(value: dict[str, Any]) -> dict[str, Any]:
    """Return the canonical form; raise with one line for each option that Ray would not accept."""
    refusals = [((option,), why) for option in value if (why := _refusal({option: value[option]}))]
    if not refusals and (why := _refusal(value)):  # each option is fine, but not all of them together
        raise ValueError(why)
    if refusals:
        raise ValidationError.from_exception_data("runtime_env", [_error_details(*each) for each in refusals])
    return normalise(value, where="runtime_env")


def _refusal(env: dict[str, Any]) -> str | None:
    try:
        normalise(env, where="runtime_env")
    except InvalidRuntimeEnv as error:  # the field is named elsewhere, with its line
        return str(error).removeprefix("runtime_env: ").removeprefix(f"{next(iter(env))}: ")
    return None


def _error_details(where: tuple[str, ...], why: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("refused", "{why}", {"why": why}), loc=where, input=None)


def resources(value: dict[str, Any]) -> dict[str, float]:
    """Accept amounts by name, `memory` as GiB or bytes."""
    return parse_requirements(value, name="max_resources")


def quota_resources(value: dict[str, Any]) -> dict[str, float]:
    """Accept amounts by name; a zero is kept: it means "none of these"."""
    return {**{str(name): 0.0 for name in value}, **parse_requirements(value, name="resources")}


def origin(value: str) -> str:
    """Accept the origin of a page: scheme, host and port, as browsers send it."""
    match = _URL.fullmatch(value)
    if not match or match["path"] not in {None, "/"}:
        raise ValueError(f"expected an origin such as https://ui.example.org, found {shown(value)}")
    return value.rstrip("/").lower()


def _is_port(port: str | int) -> bool:
    return 1 <= int(port) <= 65535
