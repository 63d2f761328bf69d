"""A stand-in for conda: it answers what Ray asks of conda, and its environments are made by `venv`.

Ray (2.9 to 2.60) asks `conda info --json` and `conda env list --json` which environments there are, makes one
for a description with `conda env create --file … --prefix …`, removes it with `conda remove -p … --all`, and
starts each worker behind `. …/etc/profile.d/conda.sh && conda activate NAME` (or `source activate NAME`
where it has no CONDA_EXE). All of this is here, so Ray itself does with it what it does with a real conda.

An environment has a `sys.prefix` of its own. It holds `ray[default]` and nothing else of the environment that
the tests run in, so above all not the package under test. `conda` is this file, run as a program.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

#: What every environment holds; pip is there for what is installed on top.
HELD = ("ray[default]", "pip", "setuptools")
OLD_PACKAGE = "an old package of this name was imported"

_PROFILE = """\
conda() {{
    if [ "$1" != activate ]; then "{conda}" "$@"; return; fi
    local prefix
    prefix="$("{conda}" prefix-of "${{2:-base}}")" || return 1
    if [ -n "$CONDA_PREFIX" ]; then PATH="${{PATH//"$CONDA_PREFIX/bin:"/}}"; fi
    export PATH="$prefix/bin:$PATH" CONDA_PREFIX="$prefix" CONDA_DEFAULT_ENV="${{2:-base}}"
    export CONDA_SHLVL="$(( ${{CONDA_SHLVL:-0}} + 1 ))" CONDA_EXE="{conda}"
}}
"""


class StandInConda:
    """A conda installation in a folder."""

    def __init__(self, root: Path, *, python: str | Path = sys.executable) -> None:
        """`python` is the interpreter whose Ray the environments hold: that of the head."""
        self.root = root
        self._python = python
        self.program = root / "bin" / "conda"
        profile = root / "etc" / "profile.d" / "conda.sh"
        for folder in (self.program.parent, profile.parent, root / "envs"):
            folder.mkdir(parents=True)
        _write_program(self.program, f'exec "{python}" -I "{Path(__file__).resolve()}" "{root}" "$@"\n')
        _write_program(self.program.with_name("activate"), f'. "{profile}" && conda activate "$@"\n')
        profile.write_text(_PROFILE.format(conda=self.program))

    def environment(self, name: str) -> Path:
        """Make an environment of this name, and return its `sys.prefix`."""
        subprocess.run([self.program, "create", "--name", name], check=True, capture_output=True)
        return self.root / "envs" / name

    def variables(self) -> dict[str, str]:
        """Return the variables that a shell has after `conda init`, for the start of a head."""
        folders = [str(self.program.parent), str(Path(self._python).parent), os.environ["PATH"]]
        return {"CONDA_EXE": str(self.program), "PATH": os.pathsep.join(folders)}


def write_old_checkout(folder: Path) -> None:
    """Write a checkout of the older package, which has its modules at its top; to import it is an error."""
    package = folder / "ray_multicluster_scheduler"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "0.1.0"\nraise RuntimeError({OLD_PACKAGE!r})\n')


def _write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)


class _Conda:
    """The commands of the program."""

    def __init__(self, root: Path) -> None:
        self._root = root
        #: Environments outside of `envs`, as conda keeps them in ~/.conda/environments.txt.
        self._others = root / "environments.txt"

    def prefixes(self) -> list[str]:
        others = self._others.read_text().splitlines() if self._others.exists() else []
        named = sorted(map(str, (self._root / "envs").iterdir()))
        return [str(self._root), *named, *(each for each in others if Path(each).is_dir())]

    def prefix_of(self, name: str) -> Path:
        """Return the folder of an environment that is given by its name or its path."""
        if name == "base":
            return self._root
        prefix = Path(name) if os.sep in name else self._root / "envs" / name
        if str(prefix) not in self.prefixes():
            sys.exit(f"EnvironmentNameNotFound: Could not find conda environment: {name}")
        return prefix

    def create(self, prefix: Path, packages: list[str]) -> None:
        if prefix.exists():
            sys.exit(f"CondaValueError: prefix already exists: {prefix}")
        venv.create(prefix, symlinks=True)
        # Beside the environment, not in it: pip removes what it finds in the environment, through links too.
        held = self._root / "held"
        if not held.exists():
            _link_packages(held)
        (site,) = prefix.glob("lib/python*/site-packages")
        (site / "held.pth").write_text(f"{held}\n")
        with self._others.open("a") as others:
            others.write("" if prefix.parent == self._root / "envs" else f"{prefix}\n")
        if packages:
            command = [str(prefix / "bin" / "python"), "-m", "pip", "install", *packages]
            if code := subprocess.run(command, check=False).returncode:
                sys.exit(f"CondaEnvException: Pip failed ({code})")

    def remove(self, prefix: Path) -> None:
        shutil.rmtree(prefix)


def _link_packages(folder: Path) -> None:
    """Link the files of what environments hold into one folder."""
    folder.mkdir()
    for found in _closure():
        site = Path(str(found.locate_file("")))
        for top in {each.parts[0] for each in found.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(site / top)


def _closure() -> Iterator[Distribution]:
    """Yield the distributions that are held, with all that they need and that is installed."""
    waiting = [Requirement(each) for each in HELD]
    seen = set()
    while waiting:
        wanted = waiting.pop()
        key = (wanted.name.lower(), frozenset(wanted.extras))
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            continue
        if key in seen:
            continue
        seen.add(key)
        yield found
        for each in map(Requirement, found.requires or ()):
            extras = wanted.extras or {""}
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(each)


def _packages_of(description: dict[str, object]) -> list[str]:
    """Return what pip has to install for the description of an environment; refuse another Python."""
    packages: list[str] = []
    for each in description.get("dependencies") or []:  # type: ignore[attr-defined]
        if isinstance(each, dict):
            packages += each.get("pip") or []
            continue
        name, wanted = re.fullmatch(r"([\w.-]+)\s*(.*)", each).groups()  # type: ignore[union-attr]
        if re.match("=", wanted):  # `=3.11` of conda is `==3.11.*` of pip
            wanted = f"=={wanted.strip('=*. ')}.*"
        if name != "python":
            packages += [] if name == "pip" else [name + wanted]
        elif (here := platform.python_version()) not in SpecifierSet(wanted):
            sys.exit(f"ResolvePackageNotFound:\n  - {each} (this stand-in for conda has {here})")
    # Ray asks for itself, by the address of a wheel; every environment holds it.
    return [each for each in packages if not re.search(r"(^|/)ray(\[|-\d|$)", each)]


def main(root: Path, words: list[str]) -> None:
    """Run one command of conda."""
    conda = _Conda(root)
    if words[:1] == ["env"]:
        words = [f"env {' '.join(words[1:2])}", *words[2:]]
    command, *rest = words or ["--help"]
    if command == "run":  # --name NAME COMMAND…
        path = os.pathsep.join([str(conda.prefix_of(rest[1]) / "bin"), os.environ["PATH"]])
        os.execvpe(rest[2], rest[2:], {**os.environ, "PATH": path})
    options = argparse.ArgumentParser()
    options.add_argument("-n", "--name")
    options.add_argument("-p", "--prefix", type=Path)
    options.add_argument("-f", "--file", type=Path)
    for flag in ("--json", "--all"):
        options.add_argument(flag, action="store_true")
    options.add_argument("-y", "--yes", action="store_true")
    given, packages = options.parse_known_args(rest)
    if command == "--help":
        print("usage: conda [info | env list | env create | env remove | create | remove | run | activate]")
    elif command == "--version":
        print("conda 24.0.0")
    elif command == "info":
        print(json.dumps({"conda_prefix": str(root), "root_prefix": str(root), "envs": conda.prefixes()}))
    elif command == "env list":
        print(json.dumps({"envs": conda.prefixes()}))
    elif command == "prefix-of":
        print(conda.prefix_of(packages[0]))
    elif command in ("create", "env create"):
        description = yaml.safe_load(given.file.read_text()) if given.file else {"dependencies": packages}
        conda.create(given.prefix or root / "envs" / given.name, _packages_of(description))
    elif command in ("remove", "env remove"):
        conda.remove(conda.prefix_of(str(given.prefix or given.name)))
    else:
        sys.exit(f"CommandNotFoundError: No command 'conda {command}'.")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
