"""Read requirement and conda files at submit, because no cluster can see the files of the submitter."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ray_multicluster_scheduler.environment.options import ReadFile
from ray_multicluster_scheduler.errors import ConfigInvalid, InvalidRuntimeEnv

#: URLs and variables of the node (`${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}`) are for pip on the cluster.
_LOCAL = r"(?![^\n]*(?:://|\$\{))"
_INCLUDE = re.compile(rf"^[ \t]*(?:-r|--requirement){_LOCAL}[ \t=]*(?P<file>[^\s#]+)[^\n]*$", re.MULTILINE)
#: On the cluster, pip would look for these beside its copy of the file.
_STAYS_HERE = re.compile(
    rf"^[ \t]*(?:(?:-c|--constraint|-e|--editable){_LOCAL}|\.{{1,2}}/)[^\n]*", re.MULTILINE
)


def local_path(cwd: Path, name: str) -> Path:
    """Return the absolute path that a user means by `name`, with `~` and `..` resolved."""
    home_expanded = os.path.expanduser(name)  # noqa: PTH111 - Path raises if there is no such user
    return Path(os.path.normpath(cwd / home_expanded))


def reader(cwd: Path) -> ReadFile:
    """Return a function that reads files for `normalise`: YAML parsed, requirements with their includes."""

    def read(name: str) -> object:
        path = local_path(cwd, name)
        return read_yaml(path) if path.suffix in {".yaml", ".yml"} else _requirements(path, ())

    return read


def read_yaml(path: Path) -> object:
    """Read a YAML file as safely as clusters.yaml: no tags, a limit on aliases, no key twice."""
    text = _text(path)
    try:
        from ray_multicluster_scheduler.config.document import read_document  # noqa: PLC0415 - YAML is rare

        document = read_document(text, path)
    except ConfigInvalid as invalid:
        raise InvalidRuntimeEnv(f"{path} is not valid YAML: {'; '.join(invalid.problems)}") from None
    if document.problems:
        raise InvalidRuntimeEnv(f"{path}: {'; '.join(map(str, document.problems))}")
    return document.value


def _requirements(path: Path, within: tuple[Path, ...]) -> str:
    """Return the text of a requirements file with `-r other.txt` replaced by the content of that file."""
    if path in within:
        raise InvalidRuntimeEnv(f"{path} includes itself, by way of {within[-1]}")
    text = _text(path)
    if local := _STAYS_HERE.search(text):
        raise InvalidRuntimeEnv(
            f"{path}: {local[0].strip()!r} names a file of this machine, which no cluster can see; pin the "
            "versions themselves, and send local code with working_dir or py_modules"
        )
    return _INCLUDE.sub(
        lambda found: _requirements(local_path(path.parent, found["file"]), (*within, path)), text
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as problem:
        raise InvalidRuntimeEnv(f"{path} cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise InvalidRuntimeEnv(f"{path} is not UTF-8 text") from problem
