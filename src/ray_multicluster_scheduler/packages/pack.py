"""Write one package file. The same content gives the same bytes, and so the same name.

Entries are sorted, their time stamps fixed and their permissions kept, so that a script stays executable and
a private file private.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ray_multicluster_scheduler.errors import PackageProblem
from ray_multicluster_scheduler.packages.tree import Tree, TreeEntry, unreadable

# The message for a directory that Ray would refuse: what is large in it, and which line would help.


#: If one entry has nearly all of the size of a directory, the entry is named instead.
NEARLY_ALL = 0.8
SHOWN = 5


def too_large(tree: Tree, max_bytes: int) -> PackageProblem:
    """Name the total, the limit, the largest parts, and the `excludes` that would be enough."""
    sizes = tree.sizes
    total = sum(sizes.values())
    largest = largest_parts(sizes)[:SHOWN]
    excludes = _enough(largest, total, max_bytes)
    listed = "".join(f"\n  {_mib(size):>12}  {name}" for name, size in largest)
    return PackageProblem(
        f"{tree.source.root} is too large to send: {len(sizes)} files with {_mib(total)}, which stay above "
        f"Ray's limit of {_mib(max_bytes)} when zipped. The largest:{listed}\n"
        f'Leave out what the job does not need with "excludes": {json.dumps(excludes)} in the runtime_env, '
        "or put data on storage that the cluster can read."
    )


def largest_parts(sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the top-level files and directories (`name/`), largest first.

    A directory is replaced by an entry that has nearly all of its size: `data/raw/a.bin` helps more than
    `data/`.
    """
    totals, content = _by_directory(sizes)
    parts = [_narrowed(name, totals, content) for name in content[""]]
    return sorted(((name, totals[name]) for name in parts), key=lambda part: (-part[1], part[0]))


def _by_directory(sizes: Mapping[str, int]) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Return the size of every file and directory, and the entries of each directory (the root is "")."""
    totals: dict[str, int] = {}
    content: dict[str, set[str]] = {"": set()}
    for name, size in sizes.items():
        above = ""
        for part in name.split("/")[:-1]:
            inner = f"{above}{part}/"
            content.setdefault(inner, set())
            content[above].add(inner)
            totals[inner] = totals.get(inner, 0) + size
            above = inner
        content[above].add(name)
        totals[name] = size
    return totals, content


def _narrowed(name: str, totals: Mapping[str, int], content: Mapping[str, set[str]]) -> str:
    while inside := content.get(name):
        largest = max(inside, key=lambda inner: (totals[inner], inner))
        if totals[largest] < NEARLY_ALL * totals[name]:
            break
        name = largest
    return name


def _enough(largest: Sequence[tuple[str, int]], total: int, max_bytes: int) -> list[str]:
    """Return the fewest of the largest parts that get the rest below the limit."""
    excludes: list[str] = []
    for name, size in largest:
        if total < max_bytes:
            break
        # A leading slash ties the pattern to this one place.
        excludes.append(f"/{name}")
        total -= size
    return excludes


def _mib(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB"


#: Ray's dashboard refuses a body of this size.
MAX_BYTES = 100 * 1024**2
CHUNK_BYTES = 1024**2
#: No real data shrinks to less than a hundredth. A larger tree is refused before it is read.
MOST_SHRINKING = 100
#: The first moment that a zip file can express.
EPOCH = (1980, 1, 1, 0, 0, 0)
#: 160 bits: no two packages can be made to have the same name.
NAME_DIGITS = 40

#: Called with (bytes read, bytes in total) after each chunk.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A finished package file. `gcs://<name>` is how an environment refers to it."""

    name: str
    sha256: str
    size: int
    files: int


def pack_tree(
    tree: Tree, target: IO[bytes], *, max_bytes: int = MAX_BYTES, progress: Progress | None = None
) -> Packed:
    """Zip a tree into `target`.

    Files may change in the meantime. Of each file, at most its size at the time of opening is packed, and a
    file that has disappeared is left out.
    """
    total, done = sum(tree.sizes.values()), 0
    if total > max_bytes * MOST_SHRINKING:
        raise too_large(tree, max_bytes)

    def go_on(count: int) -> bool:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)
        return target.tell() < max_bytes

    full = False
    with zipfile.ZipFile(target, "w") as archive:
        for entry in tree.entries:
            full = not _add(archive, entry, go_on)
            if full:
                break
    if full or target.tell() >= max_bytes:  # the directory at the end of a zip counts too
        raise too_large(tree, max_bytes)
    sha256, size = _digest(target)
    return Packed(name=_archive_name(sha256, ".zip"), sha256=sha256, size=size, files=len(tree.entries))


def copy_archive(path: Path, target: IO[bytes], *, max_bytes: int = MAX_BYTES) -> Packed:
    """Copy a `.zip` or `.whl` that the user made, unchanged, into `target`."""
    try:
        source = path.open("rb")
    except OSError as problem:
        raise unreadable(path, problem) from problem
    with source:
        target.writelines(_chunks(source, path, limit=max_bytes))
    if target.tell() >= max_bytes:
        raise PackageProblem(
            f"{path} has {max_bytes / 1024**2:.0f} MiB or more, which Ray refuses; "
            "put it on shared storage and give its URI"
        )
    if not zipfile.is_zipfile(target):
        raise PackageProblem(f"{path} is not a zip file inside; pack it again")
    return packed_as(path.name, target)


def packed_as(name: str, file: IO[bytes]) -> Packed:
    """Describe a finished file. Its content decides its new name; `name` only decides its kind."""
    sha256, size = _digest(file)
    if name.endswith(".whl"):
        return Packed(name=_wheel_name(name, sha256), sha256=sha256, size=size, files=1)
    kind = next((kind for kind in (".tar.gz", ".tar.xz") if name.endswith(kind)), ".zip")
    return Packed(name=_archive_name(sha256, kind), sha256=sha256, size=size, files=1)


def _add(archive: zipfile.ZipFile, entry: TreeEntry, go_on: Callable[[int], bool]) -> bool:
    """Add one entry; False as soon as the archive is full. `go_on` gets the number of bytes read."""
    if entry.name.endswith("/"):
        archive.writestr(_header(entry.name, stat.S_IFDIR | 0o755, size=0), b"")
        return go_on(0)
    try:
        source = entry.path.open("rb")
    except FileNotFoundError:
        return True
    except OSError as problem:
        raise unreadable(entry.path, problem) from problem
    with source:
        status = os.fstat(source.fileno())
        mode = stat.S_IFREG | (stat.S_IMODE(status.st_mode) & 0o777)
        with archive.open(_header(entry.name, mode, status.st_size), "w") as packed:
            for chunk in _chunks(source, entry.path, limit=status.st_size):
                packed.write(chunk)
                if not go_on(len(chunk)):
                    return False
        return status.st_size > 0 or go_on(0)


def _header(name: str, mode: int, size: int) -> zipfile.ZipInfo:
    header = zipfile.ZipInfo(name, date_time=EPOCH)
    header.compress_type = zipfile.ZIP_STORED if name.endswith("/") else zipfile.ZIP_DEFLATED
    header.create_system = 3  # Unix: the permissions count
    header.external_attr = mode << 16
    header.file_size = size  # tells zipfile whether large-file fields are needed
    return header


def _chunks(source: IO[bytes], path: Path, *, limit: int) -> Iterator[bytes]:
    while limit > 0:
        try:
            chunk = source.read(min(CHUNK_BYTES, limit))
        except OSError as problem:
            raise unreadable(path, problem) from problem
        if not chunk:
            return
        yield chunk
        limit -= len(chunk)


def _digest(file: IO[bytes]) -> tuple[str, int]:
    file.seek(0)
    digest = hashlib.sha256()
    for chunk in iter(lambda: file.read(CHUNK_BYTES), b""):
        digest.update(chunk)
    return digest.hexdigest(), file.tell()


def _archive_name(sha256: str, kind: str) -> str:
    return f"_ray_pkg_{sha256[:NAME_DIGITS]}{kind}"


def _wheel_name(name: str, sha256: str) -> str:
    """Put the content's hash into the build tag.

    A wheel that is built again keeps its file name, and a cluster with the old wheel would continue to use
    it. The build tag may hold anything, and pip installs the wheel under either name.
    """
    try:
        parse_wheel_filename(name)
    except InvalidWheelFilename as problem:
        raise PackageProblem(f"{name}: not the name of a wheel: {problem}") from problem
    # name-version[-build]-python-abi-platform; a build tag starts with a digit.
    distribution, version, *_, python, abi, platform = name.split("-")
    return f"{distribution}-{version}-0{sha256[:NAME_DIGITS]}-{python}-{abi}-{platform}"
