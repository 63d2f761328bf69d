"""Which server this process was told to use, with what token, and where that was said."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ray_multicluster_scheduler.config.find import expanded, home_dir
from ray_multicluster_scheduler.config.server_url import server_url
from ray_multicluster_scheduler.environment.env_vars import ADDRESS_VAR, TOKEN_FILE_VAR, TOKEN_VAR
from ray_multicluster_scheduler.errors import ConfigInvalid, NotAuthenticated

CA_VAR = "RAY_MULTICLUSTER_CA"
#: In the home of the product, when nothing else is said.
TOKEN_FILE = "token"  # noqa: S105 - the name of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """A server, and what its callers need."""

    #: `http://host:port`, without a slash at its end.
    url: str
    #: Who named it, for messages.
    named_by: str
    token: str | None = field(default=None, repr=False)
    #: Where the token was found, or was looked for in vain.
    token_place: str = ""
    #: The file with the CA certificate of an https server; None: those of the system.
    ca: Path | None = None


def server_in(environ: Mapping[str, str]) -> ServerAddress | None:
    """Return the server that the environment names, if it names one."""
    said = environ.get(ADDRESS_VAR)
    if not said:
        return None
    try:
        url = server_url(said)
    except ValueError as error:
        raise ConfigInvalid(ADDRESS_VAR, [str(error)]) from None
    return server_at(url, named_by=ADDRESS_VAR, environ=environ)


def server_at(url: str, *, named_by: str, environ: Mapping[str, str]) -> ServerAddress:
    """Return the server at an address with the token and the CA that the environment has for it."""
    token, place = _token(environ)
    return ServerAddress(url=url, named_by=named_by, token=token, token_place=place, ca=_ca(environ))


def _token(environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the token, and where it was found or looked for."""
    if said := environ.get(TOKEN_VAR, "").strip():
        return said, TOKEN_VAR
    named = environ.get(TOKEN_FILE_VAR)
    path = expanded(named).absolute() if named else home_dir(environ) / TOKEN_FILE
    try:
        mode = path.stat().st_mode
        content = path.read_text().strip()
    except FileNotFoundError:
        if named:
            raise NotAuthenticated(f"{TOKEN_FILE_VAR} names {path}, and there is no such file") from None
        return None, f"{TOKEN_VAR} and {path}"
    except (OSError, UnicodeDecodeError) as error:
        raise NotAuthenticated(f"the token cannot be read from {path}: {error}") from None
    if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise NotAuthenticated(f"others can read the token in {path}; make it yours alone: chmod 600 {path}")
    return content or None, str(path)


def _ca(environ: Mapping[str, str]) -> Path | None:
    said = environ.get(CA_VAR)
    if not said:
        return None
    path = expanded(said).absolute()
    if not path.is_file():
        raise ConfigInvalid(CA_VAR, [f"there is no file {path}"])
    return path
