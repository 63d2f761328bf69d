"""Checks of installed packages. Jobs need no Ray here; tasks, actors, pipelines and sandboxes do."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from ray_multicluster_scheduler.errors import InvalidRequest

_SERVER = ("fastapi", "hpack", "httptools", "prometheus_client", "uvicorn", "websockets")
GET_RAY = "pip install 'ray-multicluster-scheduler[ray]'"


def check_ray(what: str) -> None:
    """Raise if Ray is not installed, and say how to get it; `what` needs it."""
    if find_spec("ray") is None:
        raise InvalidRequest(f"{what} need Ray on this machine, and it is not installed: {GET_RAY}")


def check_server() -> None:
    """Raise if libraries for the server are not installed, and say how to get them."""
    if missing := [name for name in _SERVER if find_spec(name) is None]:
        raise InvalidRequest(
            f"a server needs {', '.join(missing)}: pip install 'ray-multicluster-scheduler[server]'"
        )


def has_dashboard() -> bool:
    """Tell whether what the pages are made with is installed."""
    return find_spec("nicegui") is not None


def check_dashboard() -> None:
    """Raise if it is not, and say how to get it."""
    if not has_dashboard():
        raise InvalidRequest("a dashboard needs NiceGUI: pip install 'ray-multicluster-scheduler[dashboard]'")


def check_postgres() -> None:
    """Raise if the driver for PostgreSQL is not installed, and say how to get it."""
    if find_spec("psycopg") is None:
        raise InvalidRequest(
            "a job store on PostgreSQL needs psycopg: pip install 'ray-multicluster-scheduler[postgres]'"
        )


def ray_version() -> str | None:
    """Return the version of the Ray that is installed here, without importing it; None: there is none."""
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None
