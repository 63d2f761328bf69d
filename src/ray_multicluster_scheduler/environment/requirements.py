"""Lists of pip requirements: which package an item asks for, and how two lists become one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

#: `requests==2.31 --hash=sha256:…  # why`: what follows the requirement itself.
_TRAILER = re.compile(r"\s+(?:--|#).*")
#: Marks of an item that only pip itself can judge: a path, a URL, a variable of the node.
_LEFT_TO_PIP = ("/", "\\", "${")


def package_name(item: str) -> str | None:
    """Return the package that `item` asks for (`Foo_Bar>=1`: `foo-bar`), None for an option or a URL."""
    try:
        return canonicalize_name(Requirement(_TRAILER.sub("", item)).name)
    except InvalidRequirement:
        return None


def is_requirement(item: str) -> bool:
    """Tell whether pip can make sense of `item`: `pandas=1.5` (one `=`) would only fail on the cluster."""
    left_to_pip = item.startswith("-") or any(mark in item for mark in _LEFT_TO_PIP)
    return left_to_pip or package_name(item) is not None


def merge_requirements(weaker: Sequence[str], stronger: Sequence[str]) -> list[str]:
    """Return both lists as one; a package that `stronger` names is taken from there alone.

    Options and URLs have no name: they stay, the stronger ones last, where they win in pip too.
    """
    named = {package_name(item) for item in stronger} - {None}
    kept = [item for item in weaker if item not in stronger and package_name(item) not in named]
    return [*kept, *stronger]


def parse_requirements_file(text: str) -> list[str]:
    """Return the items of a requirements.txt, without comments and with continued lines joined."""
    lines = text.replace("\\\n", " ").splitlines()
    return [item for line in lines if (item := re.sub(r"(?:^|\s)#.*", "", line).strip())]
