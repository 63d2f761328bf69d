"""Lists of pip requirements: the package that an item names, and merging two lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

#: Options and comments after the requirement itself: `requests==2.31 --hash=sha256:…  # why`.
_TRAILER = re.compile(r"(?<=\s)(?:--|#).*")
_COMMENT = re.compile(r"(?:^|\s)#.*")
#: Marks of an item that only pip can interpret: a path, a URL, a variable of the node.
_LEFT_TO_PIP = ("/", "\\", "${")


def requirement_of(item: str) -> Requirement:
    """Return what `item` requires, without options and comments; raises `InvalidRequirement`."""
    try:
        return Requirement(_TRAILER.sub("", item))
    except RecursionError:  # a marker of brackets
        raise InvalidRequirement(f"{item[:40]!r}… is nested too deep") from None


def package_name(item: str) -> str | None:
    """Return the package that `item` names (`foo-bar` for `Foo_Bar>=1`); None for an option or a URL."""
    try:
        return canonicalize_name(requirement_of(item).name)
    except InvalidRequirement:
        return None


def is_below(item: str, version: str) -> bool:
    """Tell whether the requirement `item` takes only versions before this one: pinned, or with a limit."""
    first = Version(version)
    with suppress(ValueError):  # a number that is too long for Python
        for each in requirement_of(item).specifier:
            if each.operator in {"==", "<="} and Version(each.version.replace(".*", ".99999")) < first:
                return True
            if each.operator == "<" and Version(each.version) <= first:
                return True
    return False


def is_requirement(item: str) -> bool:
    """Tell whether pip understands `item`. `pandas=1.5` (one `=`) would otherwise fail on the cluster."""
    left_to_pip = item.startswith("-") or any(mark in item for mark in _LEFT_TO_PIP)
    return left_to_pip or package_name(item) is not None


def merge_requirements(weaker: Sequence[str], stronger: Sequence[str]) -> list[str]:
    """Merge two lists; for a package that `stronger` names, only its item of `stronger` is kept.

    Options and URLs have no name and all stay. Those of `stronger` come last, where they win in pip as well.
    """
    same, named = set(stronger), {package_name(item) for item in stronger} - {None}
    kept = [item for item in weaker if item not in same and package_name(item) not in named]
    return [*kept, *stronger]


def parse_requirements_file(text: str) -> list[str]:
    """Return the items of a requirements.txt, without comments and with continued lines joined."""
    lines = text.replace("\\\n", " ").splitlines()
    return [item for line in lines if (item := _COMMENT.sub("", line).strip())]
