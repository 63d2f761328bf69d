"""A file name says what is inside, so it occurs once in the package."""

from collections import defaultdict
from pathlib import Path

from tests.unit.test_layers import MODULES, SRC

#: These folders mirror each other, and the things that they show: `raymc jobs`, its options, its view and its
#: route have one name.
MIRRORS = {Path("cli/commands"), Path("cli/options"), Path("cli/views"), Path("server/v1")}
MIGRATIONS = SRC / "store" / "schema" / "migrations"
#: Python gives these names their meaning.
EVERYWHERE = {"__init__.py", "__main__.py"}


def folders_of(modules: list[Path]) -> dict[str, set[str]]:
    """Each file name, and the folders outside the mirrors that have a file of that name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in modules:
        folder = path.parent.relative_to(SRC)
        if path.name not in EVERYWHERE and folder not in MIRRORS and not path.is_relative_to(MIGRATIONS):
            found[path.name].add(str(folder))
    return found


def test_a_file_name_occurs_once() -> None:
    assert {name: folders for name, folders in folders_of(MODULES).items() if len(folders) > 1} == {}


def test_every_mirror_is_there() -> None:
    assert all((SRC / folder).is_dir() for folder in MIRRORS)
