"""Which clusters.yaml is used: the order of the places, and no silent fall-through."""

from pathlib import Path

import pytest

from ray_multicluster_scheduler.config import find_config, home_dir
from ray_multicluster_scheduler.errors import ConfigNotFound


class Places:
    """The five places where a configuration can be, under one directory."""

    def __init__(self, root: Path) -> None:
        self.cwd = root / "project"
        self.home = root / "home"
        self.argument = root / "argument.yaml"
        self.variable = root / "variable.yaml"
        self.in_cwd = self.cwd / "clusters.yaml"
        self.in_home = self.home / "clusters.yaml"
        self.sandbox = self.home / "local" / "clusters.yaml"
        self.in_order = [self.argument, self.variable, self.in_cwd, self.in_home, self.sandbox]

    def write(self, *paths: Path) -> None:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("clusters: {}")

    def find(self, *, argument: str | Path | None = None, variable: Path | str = "") -> Path:
        environ = {"RAY_MULTICLUSTER_HOME": str(self.home), "RAY_MULTICLUSTER_CONFIG": str(variable)}
        return find_config(argument, environ=environ, cwd=self.cwd)


@pytest.mark.parametrize("missing", range(5))
def test_the_places_are_looked_at_in_order(tmp_path: Path, missing: int) -> None:
    places = Places(tmp_path)
    left = places.in_order[missing:]
    places.write(*left)
    found = places.find(
        argument=places.argument if places.argument in left else None,
        variable=places.variable if places.variable in left else "",
    )
    assert found == left[0]


def test_a_file_that_was_named_must_exist_even_when_others_do(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.write(places.in_cwd, places.in_home, places.sandbox)
    with pytest.raises(ConfigNotFound, match=str(places.argument)) as caught:
        places.find(argument=places.argument, variable=places.in_home)
    assert len(caught.value.looked_at) == 1
    with pytest.raises(
        ConfigNotFound, match=r"variable\.yaml \(RAY_MULTICLUSTER_CONFIG; it does not exist\)"
    ):
        places.find(variable=places.variable)


def test_a_directory_is_not_taken_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigNotFound, match="it is a directory"):
        Places(tmp_path).find(argument=tmp_path)


def test_a_relative_name_is_meant_from_the_current_directory(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.write(places.argument)
    places.cwd.mkdir()
    assert places.find(argument="../argument.yaml").samefile(places.argument)


def test_nothing_found_lists_every_place_and_names_the_sandbox(tmp_path: Path) -> None:
    places = Places(tmp_path)
    with pytest.raises(RuntimeError, match="raymc local up") as caught:
        places.find()
    for place in ("RAY_MULTICLUSTER_CONFIG", places.in_cwd, places.in_home, places.sandbox):
        assert str(place) in str(caught.value)


def test_the_home_is_below_the_users_home_unless_moved(tmp_path: Path) -> None:
    assert home_dir({}) == Path.home() / ".ray_multicluster"
    assert home_dir({"RAY_MULTICLUSTER_HOME": ""}) == Path.home() / ".ray_multicluster"
    assert home_dir({"RAY_MULTICLUSTER_HOME": str(tmp_path)}) == tmp_path
    assert home_dir({"RAY_MULTICLUSTER_HOME": "~/elsewhere"}) == Path.home() / "elsewhere"


def test_the_home_of_nobody_is_a_place_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigNotFound, match="~nobody-here"):
        Places(tmp_path).find(argument="~nobody-here/clusters.yaml")
