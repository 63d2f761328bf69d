"""The program of the short job of `raymc doctor --run`: prints one line about the environment that it got.

Its text is sent as the job's entrypoint, to any Python of a cluster. So it uses only the standard library,
and no syntax newer than that of Python 3.8.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from importlib import metadata

#: The beginning of the line, by which it is found in the job's log.
MARK = "RAYMC-TRIAL "
PACKAGE = "ray_multicluster_scheduler"


def _conda() -> str:
    """Return the name of the active conda environment, if its Python runs this program."""
    active = os.path.realpath(os.environ.get("CONDA_PREFIX") or os.devnull)
    return os.environ.get("CONDA_DEFAULT_ENV", "") if active == os.path.realpath(sys.prefix) else ""


def _ray() -> str | None:
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        return None


def _package() -> dict[str, object]:
    """Import the package as any program would. An older one may do anything then."""
    try:
        package = importlib.import_module(PACKAGE)
    except BaseException as problem:  # noqa: BLE001 - it may even call sys.exit
        why = f"{type(problem).__name__}: {problem}"[:500]
        spec = importlib.util.find_spec(PACKAGE)
        return {"package": spec and spec.origin, "package_problem": why if spec else ""}
    return {"package": package.__file__, "package_version": getattr(package, "__version__", None)}


def _told() -> dict[str, object]:
    search_path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    home = os.environ.get("home_dir")  # noqa: SIM112 - the name that clusters.yaml gives it
    temp = tempfile.gettempdir()
    return {
        "host": socket.gethostname(),
        "conda": _conda(),
        "prefix": sys.prefix,
        "executable": sys.executable,
        "python": platform.python_version(),
        "ray": _ray(),
        "home_dir": home,
        "home_dir_exists": home is not None and os.path.isdir(home),  # noqa: PTH112 - False without rights
        "search_path": len(search_path),
        "not_there": [each for each in search_path if not os.path.exists(each)],  # noqa: PTH110
        "temp_dir": temp,
        "temp_free": shutil.disk_usage(temp).free,
        "carried": os.environ.get("RAY_MULTICLUSTER_PACKAGE"),
        **_package(),
        "clock": time.time(),
    }


if __name__ == "__main__":
    print("\n" + MARK + json.dumps(_told()), flush=True)  # noqa: T201
