"""Inputs and outputs of a pipeline: local paths and URIs, accessed with pyarrow's filesystems."""

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
_SUPPORTED = "CSV (.csv), Parquet (.parquet) and JSON lines (.jsonl) are known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A file or directory on some filesystem."""

    written: str
    filesystem: Any
    path: str
    local: bool

    @property
    def format(self) -> Format:
        """The format by the suffix of the name; for a directory, by the first file with a known suffix."""
        if (by_suffix := _SUFFIXES.get(Path(self.path).suffix.lower())) is not None:
            return by_suffix
        for name in self._names():
            if (by_suffix := _SUFFIXES.get(Path(name).suffix.lower())) is not None:
                return by_suffix
        raise InvalidRequest(f"the format of {self.written} cannot be told by its name; {_SUPPORTED}")

    def _names(self) -> list[str]:
        info = self.filesystem.get_file_info(self.path)
        if info.type is not fs.FileType.Directory:
            return []
        inside = self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=True))
        return sorted(each.path for each in inside if each.is_file)


def locate(location: str) -> Location:
    """Find the filesystem of a path or of a URI that pyarrow supports, such as `s3://` or `hdfs://`."""
    if "://" not in location:
        return Location(written=location, filesystem=fs.LocalFileSystem(), path=location, local=True)
    try:
        filesystem, path = fs.FileSystem.from_uri(location)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise InvalidRequest(f"{location} cannot be opened: {_first_line(problem)}") from None
    local = isinstance(filesystem, fs.LocalFileSystem)
    return Location(written=location, filesystem=filesystem, path=path, local=local)


def find_input(location: str) -> Location:
    """Return the location of an input that exists and has a known format."""
    source = locate(location)
    try:
        kind = source.filesystem.get_file_info(source.path).type
    except OSError as problem:
        raise InvalidRequest(f"{location} cannot be read: {_first_line(problem)}") from None
    if kind is fs.FileType.NotFound:
        where = f" on {socket.gethostname()}" if source.local else ""
        raise InvalidRequest(f"there is no input {location}{where}")
    _ = source.format  # refuses an unknown format before anything is started
    return source


def find_output(location: str) -> Location:
    """Return the location of an output; only Parquet and CSV are written."""
    target = locate(location)
    if _SUFFIXES.get(Path(target.path).suffix.lower()) not in ("parquet", "csv"):
        raise InvalidRequest(f"the output {location} must end in .parquet or .csv")
    return target


def read_table(source: Location) -> pa.Table:
    """Read a whole input."""
    try:
        return dataset.dataset(source.path, filesystem=source.filesystem, format=source.format).to_table()
    except (pa.ArrowException, OSError) as problem:
        raise InvalidRequest(f"{source.written} cannot be read: {_first_line(problem)}") from None


def write_table(table: pa.Table, target: Location) -> None:
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
