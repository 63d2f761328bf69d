"""The files of a local directory to pack: a sorted list, and a fingerprint that shows changes."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ray_multicluster_scheduler.errors import PackageProblem
from ray_multicluster_scheduler.packages.ignore import IgnoreRules, ignore_rules

#: A dangling link, a link to itself, or a file that was removed after its directory was listed.
NOTHING_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A local directory, or one `.py` file, to pack."""

    root: Path
    #: gitignore patterns, relative to the root.
    excludes: tuple[str, ...] = ()
    #: Keep the directory's own name in the package, so that it can be imported (`py_modules`).
    include_parent: bool = False
    use_gitignore: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One regular file, or (its name ends with `/`) one directory without packed files."""

    #: The path in the package, with slashes.
    name: str
    path: Path
    status: os.stat_result


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Everything that goes into one package, sorted by name."""

    source: Source
    entries: tuple[TreeEntry, ...]

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of each file by its path relative to the root."""
        skip = len(_prefix(self.source))
        return {entry.name[skip:]: entry.status.st_size for entry in self.entries if _is_file(entry)}

    @property
    def fingerprint(self) -> str:
        """A digest of all paths, sizes, modes and time stamps. No file is read for it."""
        digest = hashlib.sha256()
        for entry in self.entries:
            status = entry.status
            # ctime as well: tools that restore mtimes (cp -p, rsync) would hide a change otherwise.
            file_facts = (status.st_size, status.st_mtime_ns, status.st_ctime_ns) if _is_file(entry) else ()
            facts = (entry.name, status.st_dev, status.st_ino, status.st_mode, *file_facts)
            digest.update(repr(facts).encode())
        return digest.hexdigest()

    @property
    def changed_at(self) -> float:
        """When a file was last changed, according to the file system."""
        return max((entry.status.st_ctime for entry in self.entries if _is_file(entry)), default=0.0)


def list_tree(source: Source) -> Tree:
    """List the files of `source` to pack.

    Symbolic links are followed, as Ray does, except where one leads back to a directory that it lies in.
    Sockets, pipes, devices and dangling links are left out.
    """
    root = source.root
    try:
        status = root.stat()
    except OSError as problem:
        raise PackageProblem(
            f"{root} cannot be packed: {problem.strerror}; give a directory of this machine, "
            "or a URI that the cluster can read"
        ) from problem
    if stat.S_ISDIR(status.st_mode):
        entries = sorted(_walk(source, status), key=lambda entry: entry.name)
    elif stat.S_ISREG(status.st_mode) and root.suffix == ".py":
        entries = [TreeEntry(name=root.name, path=root, status=status)]
    else:
        raise PackageProblem(f"{root} is not a directory; a single file can be packed only if it is a .py")
    for entry in entries:
        _check_name(entry)
    return Tree(source=source, entries=tuple(entries))


@dataclass(frozen=True, slots=True)
class _Directory:
    path: Path
    #: Relative to the root, empty or with a `/` at its end.
    inside: str
    status: os.stat_result
    rules: IgnoreRules
    #: (device, inode) of itself and of all directories above it, up to the root.
    lineage: frozenset[tuple[int, int]]


def _walk(source: Source, root_status: os.stat_result) -> Iterator[TreeEntry]:
    prefix = _prefix(source)
    rules = ignore_rules(source.excludes, use_gitignore=source.use_gitignore)
    waiting = [_Directory(source.root, "", root_status, rules, frozenset({_identity(root_status)}))]
    while waiting:
        directory = waiting.pop()
        files, directories = _list_directory(directory)
        for path, inside, status in files:
            yield TreeEntry(name=prefix + inside, path=path, status=status)
        waiting += directories
        name = prefix + directory.inside
        if not files and not directories and name:
            yield TreeEntry(name=name, path=directory.path, status=directory.status)


def _list_directory(directory: _Directory) -> tuple[list[tuple[Path, str, os.stat_result]], list[_Directory]]:
    """Return the files and the directories of a directory that are packed."""
    files: list[tuple[Path, str, os.stat_result]] = []
    directories: list[_Directory] = []
    names = _names_in(directory.path)
    rules = directory.rules.entering(directory.path, directory.inside, names)
    for name in names:
        path, inside = directory.path / name, directory.inside + name
        try:
            status = path.stat()
        except OSError as problem:
            if problem.errno in NOTHING_THERE or rules.ignores(inside, is_directory=False):
                continue
            raise unreadable(path, problem) from problem
        if stat.S_ISDIR(status.st_mode):
            own = _identity(status)
            if own not in directory.lineage and not rules.ignores(inside, is_directory=True):
                below = directory.lineage | {own}
                directories.append(_Directory(path, f"{inside}/", status, rules, below))
        elif stat.S_ISREG(status.st_mode) and not rules.ignores(inside, is_directory=False):
            files.append((path, inside, status))
    return files, directories


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are wanted, not paths
    except FileNotFoundError:  # removed since it was listed
        return []
    except OSError as problem:
        raise unreadable(directory, problem) from problem


def unreadable(path: Path, problem: OSError) -> PackageProblem:
    """Say which file stops the packing, and what can be done about it."""
    return PackageProblem(
        f"{path} cannot be read ({problem.strerror}); make it readable or name it in `excludes`"
    )


def _check_name(entry: TreeEntry) -> None:
    """Refuse names that would get lost: a zip holds UTF-8, and Ray skips names with a backslash."""
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        raise PackageProblem(
            f"{entry.name!r}: this file name is not UTF-8; rename it or name it in `excludes`"
        ) from None
    if "\\" in entry.name:
        raise PackageProblem(
            f"{entry.name!r}: Ray does not unpack names with a backslash; rename it or name it in `excludes`"
        )


def _prefix(source: Source) -> str:
    return f"{source.root.name}/" if source.include_parent else ""


def _is_file(entry: TreeEntry) -> bool:
    return not entry.name.endswith("/")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
