"""Runs on the nodes of a cluster: pip packages on top of an environment that must not be changed.

Installs what `RAYMC_OVERLAY` asks for once per node, into a directory named by the hash of the request and
of the interpreter, and puts that directory first on `sys.path`. Sent along with the work; standard library
only.
"""

import fcntl
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VARIABLE = "RAYMC_OVERLAY"
#: An overlay that was not used for this long is removed when the next one is installed.
KEEP_S = 14 * 24 * 3600
_LAST_LINES = 15


def install() -> None:
    """Bring the overlay to this worker; Ray calls it before the first task (`worker_process_setup_hook`)."""
    if VARIABLE in os.environ:
        _use(_installed(os.environ[VARIABLE]))


def at_start() -> None:
    """Bring the overlay to the Python process that is starting; called by `sitecustomize`.

    A worker that would have to install first starts without: it has to report to Ray within a minute, and
    then `install` is called. Any other process is the job's program, and ends here if pip fails.
    """
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    try:
        place = _place(wanted)
        if place.is_dir():
            _use(place)
        elif not _is_ray_worker():
            _use(_installed(wanted))
    except (OSError, RuntimeError) as problem:
        sys.stderr.write(f"error: {problem}\n")
        sys.stderr.flush()
        os._exit(1)  # an exception would only be noted by `site`, and the program would run without


def _is_ray_worker() -> bool:
    return any(Path(word).name == "default_worker.py" for word in sys.orig_argv)


def _use(place: Path) -> None:
    os.utime(place)
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
    importlib.invalidate_caches()


def _place(wanted: str) -> Path:
    """Return the directory of an overlay: another request or another interpreter has another one."""
    identity = "\n".join([wanted, sys.version, sys.prefix])
    return _root() / hashlib.sha256(identity.encode()).hexdigest()[:20]


def _root() -> Path:
    root = Path(tempfile.gettempdir()) / f"raymc-overlays-{os.getuid()}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = root.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise RuntimeError(f"{root} is not ours alone, so packages in it cannot be trusted; remove it")
    return root


def _installed(wanted: str) -> Path:
    """Return the directory of the overlay. The first process installs it; the others wait for that."""
    place = _place(wanted)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            _remove_unused(place.parent)
            unfinished = place.with_suffix(".new")
            shutil.rmtree(unfinished, ignore_errors=True)
            _pip_install(json.loads(wanted), unfinished)
            unfinished.rename(place)
    return place


def _pip_install(request: "dict[str, Any]", target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--target", str(target)]
    # pip is a Python too, and must see neither this overlay nor the job's code.
    environ = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "PYTHONPATH")}
    done = subprocess.run(
        [*command, *request["options"], *request["packages"]],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = "\n".join(done.stdout.splitlines()[-_LAST_LINES:])
        names = ", ".join(request["packages"])
        raise RuntimeError(f"pip could not install {names} on top of {sys.prefix}:\n{said}")


def _remove_unused(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir() and time.time() - path.stat().st_mtime > KEEP_S:
            shutil.rmtree(path, ignore_errors=True)
