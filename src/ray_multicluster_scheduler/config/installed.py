"""Checks of installed packages. Jobs need no Ray here; tasks, actors, pipelines and sandboxes do."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from ray_multicluster_scheduler.errors import InvalidRequest

_SERVER = ("fastapi", "hpack", "httptools", "prometheus_client", "uvicorn", "websockets")
#: Tasks, actors and the `ray://` port use names that Ray does not promise to keep; jobs do not.
NEWEST_RAY_TESTED = (2, 60)


def how_to_install(extra: str) -> str:
    """Return the command that adds an extra. No index has this package, so it is installed from its clone."""
    return f"pip install '.[{extra}]' in the clone of this project"


def check_ray(what: str, extra: str = "ray") -> None:
    """Raise if Ray is not installed, and say how to get it; `what` needs it."""
    if find_spec("ray") is None:
        raise InvalidRequest(
            f"{what} need Ray on this machine, and it is not installed: {how_to_install(extra)}"
        )


def check_server() -> None:
    """Raise if libraries for the server are not installed, and say how to get them."""
    if missing := [name for name in _SERVER if find_spec(name) is None]:
        raise InvalidRequest(f"a server needs {', '.join(missing)}: {how_to_install('server')}")


def has_dashboard() -> bool:
    """Tell whether what the pages are made with is installed."""
    return find_spec("nicegui") is not None


def check_dashboard() -> None:
    """Raise if it is not, and say how to get it."""
    if not has_dashboard():
        raise InvalidRequest(f"a dashboard needs NiceGUI: {how_to_install('dashboard')}")


def check_postgres() -> None:
    """Raise if the driver for PostgreSQL is not installed, and say how to get it."""
    if find_spec("psycopg") is None:
        raise InvalidRequest(f"a job store on PostgreSQL needs psycopg: {how_to_install('postgres')}")


def ray_version() -> str | None:
    """Return the version of the Ray that is installed here, without importing it; None: there is none."""
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None
