"""Where the jobs of a configuration are kept: files on this machine, or a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.config.find import expanded, state_dir
from ray_multicluster_scheduler.config.store_owner import own_directory
from ray_multicluster_scheduler.errors import InvalidRequest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.config.load import Config

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
