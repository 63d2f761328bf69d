"""The configured server: its URL, its token, and where each was configured."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ray_multicluster_scheduler.config.find import (
    CONFIG_VARIABLE,
    OLDER_CONFIG_VARIABLE,
    expanded,
    home_dir,
    login_path,
    server_url,
)
from ray_multicluster_scheduler.environment.options import (
    ADDRESS_VAR,
    SUBMISSION_ID_VAR,
    TOKEN_FILE_VAR,
    TOKEN_VAR,
)
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


def named_server(environ: Mapping[str, str], config: str | Path | None) -> ServerAddress | None:
    """Return the server that the environment names, or else that of `raymc login`.

    A configuration that was named goes before a login, one that is merely found does not. A job is told its
    server by its environment.
    """
    named = config is not None or any(map(environ.get, (CONFIG_VARIABLE, OLDER_CONFIG_VARIABLE)))
    if (server := server_in(environ)) is not None or named or SUBMISSION_ID_VAR in environ:
        return server
    login = read_login(environ)
    return None if login is None else server_at(login[0], named_by="`raymc login`", environ=environ)


def read_login(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return address and token of `raymc login`; None if nobody has logged in."""
    path = login_path(environ)
    if (content := _private(path, "the login")) is None:
        return None
    try:
        login = json.loads(content)
        return server_url(login["address"]), str(login["token"])
    except (ValueError, TypeError, KeyError):
        raise NotAuthenticated(f"{path} is damaged; `raymc logout` removes it") from None


def server_at(url: str, *, named_by: str, environ: Mapping[str, str]) -> ServerAddress:
    """Return the server at an address with the token and the CA that the environment has for it."""
    token, place = _token(environ, url)
    return ServerAddress(url=url, named_by=named_by, token=token, token_place=place, ca=_ca(environ))


def _token(environ: Mapping[str, str], url: str) -> tuple[str | None, str]:
    """Return the token for an address, and where it was found or looked for."""
    if said := environ.get(TOKEN_VAR, "").strip():
        return said, TOKEN_VAR
    named = environ.get(TOKEN_FILE_VAR)
    if not named and SUBMISSION_ID_VAR not in environ:
        login = read_login(environ)
        if login is not None and login[0] == url:  # no other server may see it
            return login[1] or None, f"`raymc login` ({login_path(environ)})"
    path = expanded(named).absolute() if named else home_dir(environ) / TOKEN_FILE
    content = _private(path, "the token")
    if content is None:
        if named:
            raise NotAuthenticated(f"{TOKEN_FILE_VAR} names {path}, and there is no such file")
        return None, f"{TOKEN_VAR} and {path}"
    return content.strip() or None, str(path)


def _private(path: Path, what: str) -> str | None:
    """Read a file that nobody else may read; None if there is none."""
    try:
        mode = path.stat().st_mode
        content = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise NotAuthenticated(f"{what} cannot be read from {path}: {error}") from None
    if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise NotAuthenticated(f"others can read {what} in {path}; make it yours alone: chmod 600 {path}")
    return content


def _ca(environ: Mapping[str, str]) -> Path | None:
    said = environ.get(CA_VAR)
    if not said:
        return None
    path = expanded(said).absolute()
    if not path.is_file():
        raise ConfigInvalid(CA_VAR, [f"there is no file {path}"])
    return path
