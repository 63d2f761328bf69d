"""Directories for the tests, written down as a mapping."""

import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ray_multicluster_scheduler.packages.store import PackageStore


def make_tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files by relative path; a path that ends with `/` is an empty directory."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def a_store(tmp_path: Path, *, seconds_later: float = 60.0, **settings: int) -> PackageStore:
    """A store for which what the test has just written is old, so that fingerprints count."""
    return PackageStore(tmp_path / "packages", now=lambda: time.time() + seconds_later, **settings)


def names_in(store: PackageStore, name: str) -> list[str]:
    """What a package holds, as Ray would unpack it."""
    path = store.path(name.removeprefix("gcs://"))
    assert path is not None
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return archive.namelist()


def incompressible(size: int) -> bytes:
    return os.urandom(size)
