"""The message for a directory that Ray would refuse: what is large in it, and which line would help."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ray_multicluster_scheduler.errors import PackageProblem
from ray_multicluster_scheduler.packages.tree import Tree

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
