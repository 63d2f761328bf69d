"""Checks before a pipeline starts anything: files, columns, environment, address.

Starting Ray and installing packages takes minutes, so a misspelt column should be reported before that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import dataset

from ray_multicluster_scheduler.environment.compose import normalise
from ray_multicluster_scheduler.errors import InvalidRequest
from ray_multicluster_scheduler.packages.runtime_env import local_path, reader
from raymc_pipeline.files import Location, find_input, find_output
from raymc_pipeline.plan import Plan, check_names

_ADDRESS = re.compile(r"(?:ray://)?(?P<host>\[[^\]]+\]|[^\s:/@\[\]]+):(?P<port>\d{1,5})")
_LARGEST_PORT = 65535


def check_address(address: str | None) -> None:
    """Refuse an invalid address: Ray would try to connect for a minute."""
    if address is None or address == "auto":
        return
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) <= _LARGEST_PORT:
        raise InvalidRequest(
            f"--ray-address {address!r} must be host:port (6379 by default), ray://host:port (10001 by "
            "default) or auto; the address of a dashboard is none of these"
        )


def check_environment(option: str, env: Mapping[str, Any] | None) -> None:
    """Refuse an environment that Ray would refuse; files that it names are read."""
    here = Path.cwd()
    normal = normalise(env, where=option, read=reader(here))
    for location in (normal.get("working_dir"), *normal.get("py_modules", ())):
        if location is not None and "://" not in location and not local_path(here, location).exists():
            raise InvalidRequest(f"{option}: {location!r} does not exist on this machine")


def check_here(plan: Plan, *, one_file: bool) -> None:
    """Refuse inputs, columns and outputs that are wrong on this machine. pandas writes `one_file`."""
    source = find_input(plan.source)
    check_names(plan, _column_names(source))
    if plan.output is not None:
        target = find_output(plan.output)
        if target.local:
            check_writable("--output", Path(target.path), is_file=one_file)


def check_writable(option: str, path: Path, *, is_file: bool) -> None:
    """Refuse a path that cannot be written. Missing parents are created for a directory, not for a file."""
    if is_file and path.is_dir():
        raise InvalidRequest(f"{option}: {path} is a directory; write the name of a file")
    above = path.parent if is_file or not path.exists() else path
    while not is_file and not above.exists():
        above = above.parent
    if not above.is_dir():
        raise InvalidRequest(f"{option}: there is no directory {above}")
    if not os.access(path if path.exists() else above, os.W_OK):
        raise InvalidRequest(f"{option}: {path} cannot be written: permission denied")


def _column_names(source: Location) -> list[str]:
    """Read the schema of an input and return the names of its columns."""
    try:
        return list(
            dataset.dataset(source.path, filesystem=source.filesystem, format=source.format).schema.names
        )
    except (pa.ArrowException, OSError) as problem:
        words = (str(problem) or type(problem).__name__).splitlines()[0]
        raise InvalidRequest(f"{source.written} cannot be read: {words}") from None
