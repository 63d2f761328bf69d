"""Every Python that is promised: `make pythons`.

What is pinned has a wheel for it, and every module imports. The unit tests run on the oldest and the newest
Python that is here. One that is not here is resolved for. That is uv's work, because pip judges
`python_version` in a requirement by the Python that it runs on, also where `--python-version` names another.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.unit.test_dependencies import PROJECT, ROOT

PROMISED = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line]
UV = Path(sys.executable).with_name("uv")
PLACE = ROOT / "build" / "pythons"
WHEELS = ["--quiet", "--only-binary", ":all:", "--constraint", "constraints.txt"]
#: All that users can install.
EXTRAS = "dashboard,packages,pipeline,postgres,traces"
#: Another Python shows itself in the first examples of a property; `make test` draws the usual number.
FEW_EXAMPLES = {"RAYMC_TEST_EXAMPLES": "10"}
IMPORT = f"""
import importlib, pkgutil, sys
import {PROJECT["name"].replace("-", "_")} as package
# The first two do their work when they are imported; the third one is for nodes.
not_here = ("__main__", "migrations.env", "sitecustomize")
names = [found.name for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    if not name.endswith(not_here):
        importlib.import_module(name)
print(f"Python {{sys.version.split()[0]}}: {{len(names)}} modules")
"""


def main() -> int:
    """Return how many Pythons failed."""
    started = time.monotonic()
    here = {version: python for version in PROMISED if (python := find(version))}
    failed = [version for version in PROMISED if version not in here and not resolves(version)]
    failed += [version for version, python in here.items() if not imports(version, python)]
    ends = dict.fromkeys([*list(here)[:1], *list(here)[-1:]])  # one where there is one only
    failed += [version for version in ends if version not in failed and not passes(version)]
    print(f"{time.monotonic() - started:.0f} s; failed: {', '.join(failed) or 'none'}")
    return len(failed)


def find(version: str) -> str | None:
    """Return a Python of this version: on the path, or pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    named = f"python{version}"
    found = [shutil.which(named), *sorted(map(str, pyenv.glob(f"{version}.*/bin/{named}")), reverse=True)]
    # What is on the path may be pyenv's script, which refuses where that version is not chosen.
    return next((each for each in found if each and run(each, "-c", "", quiet=True)), None)


def resolves(version: str) -> bool:
    say(version, "not here; are there wheels of all that is pinned?")
    target = ["--python-version", version, "--extra", "dev", "pyproject.toml", "--output-file", os.devnull]
    return run(UV, "pip", "compile", *WHEELS, *target)


def imports(version: str, python: str) -> bool:
    say(version, f"install and import everything with {python}")
    place = PLACE / version
    return (
        run(UV, "venv", "--quiet", "--seed", "--allow-existing", "--python", python, place)
        and install(version, EXTRAS)
        and run(place / "bin" / "python", "-c", IMPORT)
    )


def passes(version: str) -> bool:
    say(version, "tests/unit")
    pytest = [PLACE / version / "bin" / "python", "-m", "pytest", "-p", "no:cacheprovider"]
    return install(version, "unit") and run(*pytest, "--quiet", "--numprocesses", "2", "tests/unit")


def install(version: str, extras: str) -> bool:
    return run(UV, "pip", "install", *WHEELS, "--python", PLACE / version, "--editable", f".[{extras}]")


def say(version: str, words: str) -> None:
    print(f"== Python {version}: {words}", flush=True)


def run(*command: str | Path, quiet: bool = False) -> bool:
    env = {**os.environ, **FEW_EXAMPLES}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=quiet, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
