"""What this process was started with: where its configuration is and its own files go, its user, its job."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from ray_multicluster_scheduler.errors import ConfigNotFound

HOME_VARIABLE = "RAY_MULTICLUSTER_HOME"
CONFIG_VARIABLE = "RAY_MULTICLUSTER_CONFIG"
FILE_NAME = "clusters.yaml"
SANDBOX_DOWN = (
    "the local clusters are down: `raymc local up` starts them; for other clusters, write a clusters.yaml"
)
#: Beside the clusters.yaml of a sandbox while its clusters are up.
SANDBOX_STATE = "state.json"
#: Where programs for the older package of this name have their file.
OLDER_CONFIG_VARIABLE = "CLUSTER_CONFIG_FILE"
OLDER_FOLDERS = ("~/.ray_scheduler", "/etc/ray_scheduler")


def home_dir(environ: Mapping[str, str]) -> Path:
    """Return the root of everything the product writes: `$RAY_MULTICLUSTER_HOME` or `~/.ray_multicluster`."""
    return expanded(environ.get(HOME_VARIABLE) or "~/.ray_multicluster").absolute()


def login_path(environ: Mapping[str, str]) -> Path:
    """Return the file in which `raymc login` keeps an address and its token."""
    return home_dir(environ) / "login.json"


def state_dir(config_path: Path, environ: Mapping[str, str], *, follow: bool = True) -> Path:
    """Return where the jobs of one configuration are kept: one folder per file, under the home.

    That of a file which was moved is a link to the folder that it had (config/store_place.py).
    """
    digest = sha256(str(config_path.resolve()).encode()).hexdigest()[:8]
    place = home_dir(environ) / f"{config_path.parent.name or 'root'}-{config_path.stem}-{digest}"
    return place.resolve() if follow and place.is_symlink() else place


def sandbox_config(environ: Mapping[str, str]) -> Path:
    """Return the clusters.yaml of `raymc local up`."""
    return home_dir(environ) / "local" / FILE_NAME


def sandbox_is_down(config_path: Path, environ: Mapping[str, str]) -> bool:
    """Tell whether a configuration is that of a sandbox that does not run: `raymc local down` leaves it."""
    sandbox = sandbox_config(environ)
    return config_path.resolve() == sandbox.resolve() and not (sandbox.parent / SANDBOX_STATE).exists()


def expanded(name: str | Path) -> Path:
    """Return a path with `~` replaced. The `~name` of an unknown user stays as it is."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def find_config(argument: str | Path | None, *, environ: Mapping[str, str], cwd: Path) -> Path:
    """Return the configuration file to use, or raise `ConfigNotFound`.

    The order is: the argument, `RAY_MULTICLUSTER_CONFIG`, `CLUSTER_CONFIG_FILE`, `clusters.yaml` in `cwd`, in
    the home and in the places of the older package, and the file of the sandbox, which stays when that is
    down, so that its jobs can be looked at. A file that was named must exist: another file would send work to
    the wrong clusters.
    """
    if argument is not None:
        return _named(argument, cwd, "the file that was asked for")
    for variable in (CONFIG_VARIABLE, OLDER_CONFIG_VARIABLE):
        if from_environ := environ.get(variable):
            return _named(from_environ, cwd, variable)
    home = home_dir(environ)
    places = {
        cwd / FILE_NAME: "the current directory",
        home / FILE_NAME: HOME_VARIABLE,
        **{expanded(folder) / FILE_NAME: "a place of the older package" for folder in OLDER_FOLDERS},
        sandbox_config(environ): "written by `raymc local up`",
    }
    for path in places:
        if path.is_file():
            return path
    raise ConfigNotFound(
        [CONFIG_VARIABLE + " (not set)", *(f"{path} ({why})" for path, why in places.items())]
    )


def _named(name: str | Path, cwd: Path, why: str) -> Path:
    path = cwd / expanded(name)
    if not path.is_file():
        problem = "is a directory" if path.is_dir() else "does not exist"
        raise ConfigNotFound([f"{path} ({why}; it {problem})"])
    return path


# The address of our own server, as people write it.


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


USER_VARIABLE = "RAY_MULTICLUSTER_USER"


def this_user() -> str:
    """Return the user that this process submits jobs for: `RAY_MULTICLUSTER_USER` or the system user."""
    return os.environ.get(USER_VARIABLE) or getpass.getuser()


def this_job() -> str | None:
    """Return the submission id of the job that this process is the program of; None if it is not one."""
    from ray_multicluster_scheduler.environment.options import SUBMISSION_ID_VAR  # noqa: PLC0415 - completion

    return os.environ.get(SUBMISSION_ID_VAR) or None
