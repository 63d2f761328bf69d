"""Lists of pip requirements: the package that an item names, and merging two lists."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

#: Options and comments after the requirement itself: `requests==2.31 --hash=sha256:…  # why`.
_TRAILER = re.compile(r"\s+(?:--|#).*")
#: Marks of an item that only pip can interpret: a path, a URL, a variable of the node.
_LEFT_TO_PIP = ("/", "\\", "${")


def package_name(item: str) -> str | None:
    """Return the package that `item` names (`foo-bar` for `Foo_Bar>=1`); None for an option or a URL."""
    try:
        return canonicalize_name(Requirement(_TRAILER.sub("", item)).name)
    except InvalidRequirement:
        return None


def is_requirement(item: str) -> bool:
    """Tell whether pip understands `item`. `pandas=1.5` (one `=`) would otherwise fail on the cluster."""
    left_to_pip = item.startswith("-") or any(mark in item for mark in _LEFT_TO_PIP)
    return left_to_pip or package_name(item) is not None


def merge_requirements(weaker: Sequence[str], stronger: Sequence[str]) -> list[str]:
    """Merge two lists; for a package that `stronger` names, only its item of `stronger` is kept.

    Options and URLs have no name and all stay. Those of `stronger` come last, where they win in pip as well.
    """
    named = {package_name(item) for item in stronger} - {None}
    kept = [item for item in weaker if item not in stronger and package_name(item) not in named]
    return [*kept, *stronger]


def parse_requirements_file(text: str) -> list[str]:
    """Return the items of a requirements.txt, without comments and with continued lines joined."""
    lines = text.replace("\\\n", " ").splitlines()
    return [item for line in lines if (item := re.sub(r"(?:^|\s)#.*", "", line).strip())]
