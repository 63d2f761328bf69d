"""Which files of a directory are not packed: `excludes`, `.gitignore` and `.rayignore`, by git's rules.

Ray reads the same three sources, so a directory is packed here as by Ray. Where Ray and git differ, git wins:
the last matching pattern decides, a pattern of a deeper file overrides one of a higher file, and nothing
below an ignored directory can be included again. The three sources are independent: a path is ignored if any
of them ignores it, as in Ray.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ray_multicluster_scheduler.errors import PackageProblem
from ray_multicluster_scheduler.packages.gitignore import Pattern, parse_patterns, verdict

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
