"""Where the jobs of a configuration are kept: files on this machine, or a PostgreSQL server."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ray_multicluster_scheduler.config.find import expanded, home_dir, state_dir
from ray_multicluster_scheduler.errors import InvalidRequest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config.load import Config


# Which clusters.yaml a directory of jobs belongs to: a small file in the directory remembers it.
#
# By it a file that was moved finds its jobs again, and a second file that names the same clusters is told
# that there is another queue. No database is opened for either.


log = logging.getLogger(__name__)

FILE = "clusters.json"
#: Directories below the home that are looked at, and how long a file is that is read there.
MOST_DIRECTORIES = 1_000
MOST_CHARS = 1_000_000
#: Other files that are named to whoever submits a job.
MOST_TOLD = 3
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOwner:
    """The configuration that a directory serves."""

    directory: Path
    path: Path
    #: The dashboards by the names of the clusters.
    clusters: Mapping[str, str]
    #: The machine on which `path` was seen: elsewhere a missing file says nothing.
    host: str

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of the dashboards by the names of the clusters, in one spelling."""
        return {name: same_address(dashboard) for name, dashboard in self.clusters.items()}


def same_address(dashboard: str) -> str:
    """Return the address of a dashboard in one spelling for all that lead to the same place."""
    try:
        parts = urlsplit(dashboard)
        host, port = (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme.lower())
    except ValueError:
        return dashboard
    host = "127.0.0.1" if host in _LOOPBACK else host
    return f"{parts.scheme.lower()}://{host}:{port}{parts.path.rstrip('/')}"


def remember(config: Config, place: StorePlace, environ: Mapping[str, str]) -> None:
    """Write down which configuration a directory serves, where it is the one that belongs to the file.

    A store that the file names serves any number of files, so nothing is written there.
    """
    own = state_dir(config.path, environ)
    if place.url is not None or place.directory != own:
        with suppress(OSError):
            (own / FILE).unlink(missing_ok=True)  # what is there is no longer where its jobs go
        return
    owner = _owner(config, own)
    if _read(own) == owner:
        return
    document = {"path": str(owner.path), "clusters": dict(owner.clusters), "host": owner.host}
    draft = own / f"{FILE}.{os.getpid()}"
    with suppress(OSError):  # a full disk is for the store to tell
        draft.write_text(json.dumps(document, indent=1, sort_keys=True), encoding="utf-8")
        draft.replace(own / FILE)


def own_directory(config: Config, environ: Mapping[str, str]) -> Path:
    """Return the directory of a configuration. A file that has moved brings the one along that it had.

    That one stays where it is, because a program may have its database open: a link leads to it.
    """
    own = state_dir(config.path, environ)
    if own.exists():
        return own
    gone = _former(_owner(config, own), environ)
    if len(gone) > 1:
        were = " or ".join(str(each.path) for each in gone)
        log.warning(
            "%s may have been at %s, with the same clusters: it begins with an empty queue. To go on with "
            "one of them, write `store: %s` under `scheduler:`, or another directory beside it",
            config.path,
            were,
            gone[0].directory,
        )
    if len(gone) != 1 or not _link(state_dir(config.path, environ, follow=False), gone[0].directory):
        return own
    log.warning(
        "%s was at %s; its jobs are found in %s", config.path.absolute(), gone[0].path, gone[0].directory
    )
    return gone[0].directory


def kept_apart(config: Config, place: StorePlace, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Say which clusters another configuration of this home uses as well, with a queue of its own."""
    names = {same_address(spec.dashboard): spec.name for spec in config.clusters}
    told = []
    for other in _owners(home_dir(environ)):
        shared = sorted(names[address] for address in names.keys() & set(other.addresses.values()))
        is_other = other.directory != place.directory.resolve() and other.path != config.path.resolve()
        if shared and is_other and _is_file(other.path):
            told.append(_sentence(shared, other, config, place))
    return tuple(told[:MOST_TOLD])


def _sentence(shared: list[str], other: StoreOwner, config: Config, place: StorePlace) -> str:
    named = ", ".join(map(repr, shared))
    clusters = f"cluster {named} is" if len(shared) == 1 else f"clusters {named} are"
    # The address of a database may hold a password.
    how = (
        f"write `store: {other.directory}` under `scheduler:` in {config.path.absolute()}"
        if place.url is None
        else f"write the `store` of {config.path.absolute()} under `scheduler:` in {other.path}"
    )
    return f"{clusters} also in {other.path}, whose jobs are kept apart; to share one queue, {how}"


def _former(owner: StoreOwner, environ: Mapping[str, str]) -> list[StoreOwner]:
    """Return the directories that served the same clusters for a file of this machine that is gone.

    The names count too: by them a history says where its jobs ran.
    """
    return [
        other
        for other in _owners(home_dir(environ))
        if other.host == owner.host and other.addresses == owner.addresses and not _may_exist(other.path)
    ]


def _owner(config: Config, directory: Path) -> StoreOwner:
    clusters = {spec.name: spec.dashboard for spec in config.clusters}
    return StoreOwner(
        directory=directory, path=config.path.resolve(), clusters=clusters, host=socket.gethostname()
    )


def _owners(home: Path) -> Iterator[StoreOwner]:
    """Yield what the directories of a home remember, sorted; links are left out."""
    try:
        found = sorted(islice(home.iterdir(), MOST_DIRECTORIES))
    except OSError:
        return
    for directory in (each for each in found if not each.is_symlink()):
        if (owner := _read(directory.resolve())) is not None:
            yield owner


def _read(directory: Path) -> StoreOwner | None:
    """Return what a directory remembers; None if it has no such file, or none that can be read."""
    try:
        with (directory / FILE).open(encoding="utf-8") as file:
            found: Any = json.loads(file.read(MOST_CHARS))
        path, clusters, host = found["path"], found["clusters"], found["host"]
    except (OSError, ValueError, RecursionError, TypeError, LookupError):
        return None
    texts = [path, host, *clusters, *clusters.values()] if isinstance(clusters, dict) else [None]
    if not all(isinstance(text, str) for text in texts) or "\0" in path:
        return None
    return StoreOwner(directory=directory, path=Path(path), clusters=clusters, host=host)


def _link(link: Path, directory: Path) -> bool:
    """Let a name lead to a directory; tell whether it does."""
    draft = link.with_name(f"{link.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        draft.symlink_to(directory.name)
        draft.replace(link)
    except OSError:  # such as a file system without links
        return False
    return True


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _may_exist(path: Path) -> bool:
    """Tell whether a file is there, or hidden by rights."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


STORE_VARIABLE = "RAY_MULTICLUSTER_STORE"
PASSWORD_FILE_VARIABLE = "RAY_MULTICLUSTER_STORE_PASSWORD_FILE"  # noqa: S105 - a name
LISTEN_VARIABLE = "RAY_MULTICLUSTER_STORE_LISTEN"
_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlace:
    """Where jobs are kept. The directory also holds what belongs to this machine, such as packed files."""

    directory: Path
    #: The address of a PostgreSQL database; None: the directory has the jobs.
    url: str | None = None
    store_password_file: Path | None = None
    #: Where to receive notifications, if `url` is that of a pooler.
    store_listen: str | None = None

    @property
    def packages(self) -> str | None:
        """Where packages are shared if no setting says it: servers on other machines need their bytes."""
        return None if self.url is None else "database"

    def __str__(self) -> str:
        """Return the place for people."""
        return str(self.directory) if self.url is None else self.url


def store_place(config: Config, environ: Mapping[str, str], *, directory: Path | None = None) -> StorePlace:
    """Return the place: the environment is asked before the file. `directory`: that of this machine."""
    settings, folder = config.settings, config.path.parent
    named = environ.get(STORE_VARIABLE)
    given = named or settings.store
    if given is None:
        return StorePlace(directory=directory or own_directory(config, environ))
    own = directory or state_dir(config.path, environ)
    if given.startswith(_POSTGRES):
        password_file = environ.get(PASSWORD_FILE_VARIABLE) or settings.store_password_file
        return StorePlace(
            directory=own,
            url=given,
            store_password_file=None if password_file is None else folder / expanded(password_file),
            store_listen=environ.get(LISTEN_VARIABLE) or settings.store_listen,
        )
    if "://" in given and not given.startswith(_SQLITE):
        raise InvalidRequest(
            f"the job store cannot be a {given.partition('://')[0]!r}: write a directory, {_SQLITE}DIRECTORY "
            "or postgresql://user@host:5432/database"
        )
    return StorePlace(directory=(Path.cwd() if named else folder) / expanded(given.removeprefix(_SQLITE)))
