"""The files of a local directory to pack: a sorted list, and a fingerprint that shows changes.

Not packed is what `excludes`, `.gitignore` and `.rayignore` say, by git's rules. Ray reads the same three
sources, so a directory is packed here as by Ray. Where Ray and git differ, git wins: the last matching
pattern decides, a pattern of a deeper file overrides one of a higher file, and nothing below an ignored
directory can be included again. The three sources are independent: a path is ignored if any of them ignores
it, as in Ray.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ray_multicluster_scheduler.errors import PackageProblem

# One line of a `.gitignore`, with exactly git's meaning.
#
# A pattern is matched against one path at a time, from the root down, so the parents are already decided.
# Libraries that match whole path names let `!src` bring back `src/data` where `data` is ignored; git does
# not.


_POSIX = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f", "digit": "0-9",
    "graph": r"\x21-\x7e", "lower": "a-z", "print": r"\x20-\x7e", "punct": r"!-/:-@\[-`{-~",
    "space": r"\s", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
#: The pieces of a pattern, tried in this order.
_PIECES = re.compile(
    r"""
    (?P<any_above> (?:^|(?<=/)) \*\*+ / )         # `**/`: here or any number of directories further down
  | (?P<anything>  (?:^|(?<=/)) \*\*+ $ )         # `/**`: all that lies below
  | (?P<some>      \*+ )
  | (?P<one>       \? )
  | \[ (?: (?P<not> [!^] ) | (?![!^]) )           # `[!a-z]`; a bracket at its start is one of the set
       (?P<set> (?: \[:[a-z]+:\] | \\. | [^\\] ) (?: \[:[a-z]+:\] | \\. | [^]\\] )* ) \]
  | \\ (?P<escaped> . )
  | (?P<plain>     [^\\[] )
    """,
    re.VERBOSE | re.DOTALL,
)
_SET_PIECES = re.compile(r"\[:(?P<posix>[a-z]+):\] | \\(?P<escaped>.) | (?P<plain>.)", re.VERBOSE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What one line says about a path."""

    regex: re.Pattern[str]
    #: False for a line that starts with `!`: it brings back what a line before it ignored.
    ignores: bool
    directories_only: bool
    #: A pattern with a slash is about the whole path, any other about the last part of it.
    whole_path: bool


def parse_patterns(lines: Iterable[str]) -> tuple[Pattern, ...]:
    """Return the patterns of an ignore file in order; comments and invalid lines are left out."""
    return tuple(pattern for line in lines if (pattern := _parse(line)) is not None)


def verdict(patterns: Sequence[Pattern], path: str, *, is_directory: bool) -> bool | None:
    """Tell whether the last pattern that matches ignores `path`; None when none matches."""
    name = path.rpartition("/")[2]
    for pattern in reversed(patterns):
        if pattern.directories_only and not is_directory:
            continue
        if pattern.regex.fullmatch(path if pattern.whole_path else name):
            return pattern.ignores
    return None


def _parse(line: str) -> Pattern | None:
    text = _without_spaces_at_its_end(line.removesuffix("\r"))
    if not text or text.startswith("#"):
        return None
    ignores = not text.startswith("!")
    text = text if ignores else text[1:]
    directories_only = text.endswith("/")
    text = text.removesuffix("/")
    translated = _translate(text.removeprefix("/"))
    if not translated:
        return None
    try:
        regex = re.compile(translated, re.DOTALL)
    except re.error:  # a range that runs backwards, such as [z-a]
        return None
    return Pattern(regex, ignores, directories_only, whole_path="/" in text)


def _without_spaces_at_its_end(line: str) -> str:
    """Return a line without them; the first one counts if it is escaped."""
    text = line.rstrip(" ")
    backslashes = len(text) - len(text.rstrip("\\"))
    return line[: len(text) + backslashes % 2]


def _translate(text: str) -> str | None:
    """Return the regular expression of a pattern; None for an open bracket or a backslash at the end."""
    regex, position = "", 0
    while position < len(text):
        piece = _PIECES.match(text, position)
        if piece is None:
            return None
        position = piece.end()
        regex += _piece(piece)
    return regex


def _piece(piece: re.Match[str]) -> str:
    match piece.lastgroup:
        case "any_above":
            return "(?:.*/)?"
        case "anything":
            return ".+"
        case "some":
            return "[^/]*"
        case "one":
            return "[^/]"
        case "set":
            return _set(piece["set"], negated=bool(piece["not"]))
    return re.escape(piece["escaped"] or piece["plain"])


def _set(content: str, *, negated: bool) -> str:
    """Translate the content of brackets. A set never matches a slash."""
    inside = ""
    for index, piece in enumerate(_SET_PIECES.finditer(content)):
        if piece["posix"]:
            inside += _POSIX.get(piece["posix"], "")
        elif piece["plain"] == "-" and index > 0 and piece.end() < len(content):
            inside += "-"
        else:
            inside += re.escape(piece["escaped"] or piece["plain"])
    return f"(?!/)[{'^' if negated else ''}{inside}]"


GITIGNORE = ".gitignore"
RAYIGNORE = ".rayignore"


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The patterns of one ignore file, matched against paths relative to `below`."""

    below: str
    patterns: tuple[Pattern, ...]

    def verdict(self, inside: str, *, is_directory: bool) -> bool | None:
        return verdict(self.patterns, inside[len(self.below) :], is_directory=is_directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreRules:
    """The rules that hold in one directory. Paths are relative to the root."""

    excludes: _Patterns
    #: By file name, from the root down: later ones win.
    files: Mapping[str, tuple[_Patterns, ...]]

    def entering(self, directory: Path, inside: str, names: Iterable[str]) -> IgnoreRules:
        """Return the rules below `directory`, which has entries of these names; `inside` ends with `/`."""
        present = [name for name in names if name in self.files and (directory / name).is_file()]
        if not present:
            return self
        read = {name: (*self.files[name], _Patterns(inside, _read(directory / name))) for name in present}
        return replace(self, files={**self.files, **read})

    def ignores(self, inside: str, *, is_directory: bool) -> bool:
        """Tell whether this path is ignored. Its parents are not."""
        if self.excludes.verdict(inside, is_directory=is_directory):
            return True
        return any(
            _deepest_verdict(chain, inside, is_directory=is_directory) for chain in self.files.values()
        )


def ignore_rules(excludes: Sequence[str], *, use_gitignore: bool) -> IgnoreRules:
    """Return the rules that hold at the root, before its own ignore files are read."""
    kinds = (GITIGNORE, RAYIGNORE) if use_gitignore else (RAYIGNORE,)
    return IgnoreRules(excludes=_Patterns("", parse_patterns(excludes)), files=dict.fromkeys(kinds, ()))


def _deepest_verdict(chain: tuple[_Patterns, ...], inside: str, *, is_directory: bool) -> bool:
    """Let the deepest ignore file with a matching pattern decide."""
    verdicts = (patterns.verdict(inside, is_directory=is_directory) for patterns in reversed(chain))
    return next((ignored for ignored in verdicts if ignored is not None), False)


def _read(path: Path) -> tuple[Pattern, ...]:
    try:
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as problem:
        raise PackageProblem(f"{path} cannot be read: {problem.strerror}") from problem
    return parse_patterns(text.split("\n"))


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
