"""Where a pipeline reads and writes: local paths and URIs, by pyarrow's filesystems."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyarrow import dataset, fs

from ray_multicluster_scheduler.errors import InvalidRequest

Format = Literal["csv", "parquet", "json"]
_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_KNOWN = "CSV (.csv), Parquet (.parquet) and JSON lines (.jsonl) are known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A file or directory on some filesystem."""

    written: str
    filesystem: Any
    path: str
    local: bool

    @property
    def format(self) -> Format:
        """Tell the format by the name, for a directory by the first file with a known one."""
        if (known := _SUFFIXES.get(Path(self.path).suffix.lower())) is not None:
            return known
        for name in self._names():
            if (known := _SUFFIXES.get(Path(name).suffix.lower())) is not None:
                return known
        raise InvalidRequest(f"the format of {self.written} cannot be told by its name; {_KNOWN}")

    def _names(self) -> list[str]:
        info = self.filesystem.get_file_info(self.path)
        if info.type is not fs.FileType.Directory:
            return []
        inside = self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True))
        return sorted(each.path for each in inside if each.is_file)


def place(location: str) -> Place:
    """Find the filesystem of a path or URI (`s3://`, `gs://`, `hdfs://`, `file://`, what pyarrow knows)."""
    if "://" not in location:
        return Place(written=location, filesystem=fs.LocalFileSystem(), path=location, local=True)
    try:
        filesystem, path = fs.FileSystem.from_uri(location)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise InvalidRequest(f"{location} cannot be opened: {_first_line(problem)}") from None
    local = isinstance(filesystem, fs.LocalFileSystem)
    return Place(written=location, filesystem=filesystem, path=path, local=local)


def find_input(location: str) -> Place:
    """Return the place of an input that exists and has a known format."""
    found = place(location)
    try:
        kind = found.filesystem.get_file_info(found.path).type
    except OSError as problem:
        raise InvalidRequest(f"{location} cannot be read: {_first_line(problem)}") from None
    if kind is fs.FileType.NotFound:
        where = f" on {socket.gethostname()}" if found.local else ""
        raise InvalidRequest(f"there is no input {location}{where}")
    _ = found.format  # an unknown one is refused before anything is started
    return found


def find_output(location: str) -> Place:
    """Return the place of an output; only Parquet and CSV are written."""
    found = place(location)
    if _SUFFIXES.get(Path(found.path).suffix.lower()) not in ("parquet", "csv"):
        raise InvalidRequest(f"the output {location} must end in .parquet or .csv")
    return found


def read_table(source: Place) -> pa.Table:
    """Read a whole input."""
    try:
        return dataset.dataset(source.path, filesystem=source.filesystem, format=source.format).to_table()
    except (pa.ArrowException, OSError) as problem:
        raise InvalidRequest(f"{source.written} cannot be read: {_first_line(problem)}") from None


def write_table(table: pa.Table, target: Place) -> None:
    """Write a whole table as one file."""
    from pyarrow import csv, parquet  # noqa: PLC0415 - each only where it is needed

    write = parquet.write_table if target.format == "parquet" else csv.write_csv
    try:
        with target.filesystem.open_output_stream(target.path) as stream:
            write(table, stream)
    except (pa.ArrowException, OSError) as problem:
        raise InvalidRequest(f"{target.written} cannot be written: {_first_line(problem)}") from None


def _first_line(problem: BaseException) -> str:
    return (str(problem) or type(problem).__name__).splitlines()[0]
