"""Settings of the older package are named with what to write instead."""

from pathlib import Path

import pytest

from ray_multicluster_scheduler.config.find import find_config
from ray_multicluster_scheduler.config.load import INSTEAD, ignored_settings
from ray_multicluster_scheduler.config.schema import Settings
from ray_multicluster_scheduler.errors import ConfigNotFound

FOLDER = ".ray_scheduler"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has nothing but what a test puts there."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / FOLDER).mkdir(parents=True)
    return tmp_path / "home"


def test_the_file_of_the_older_variable_is_used_unless_ours_names_one(tmp_path: Path, home: Path) -> None:
    older, ours = tmp_path / "older.yaml", tmp_path / "ours.yaml"
    older.touch()
    ours.touch()
    assert find_config(None, environ={"CLUSTER_CONFIG_FILE": str(older)}, cwd=tmp_path) == older
    both = {"CLUSTER_CONFIG_FILE": str(older), "RAY_MULTICLUSTER_CONFIG": str(ours)}
    assert find_config(None, environ=both, cwd=tmp_path) == ours


def test_a_file_in_the_older_folder_is_found_after_ours(tmp_path: Path, home: Path) -> None:
    (home / FOLDER / "clusters.yaml").touch()
    assert find_config(None, environ={}, cwd=tmp_path) == home / FOLDER / "clusters.yaml"
    (tmp_path / "clusters.yaml").touch()
    assert find_config(None, environ={}, cwd=tmp_path) == tmp_path / "clusters.yaml"


def test_the_older_places_are_named_when_nothing_was_found(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ConfigNotFound, match=r"/etc/ray_scheduler/clusters\.yaml") as caught:
        find_config(None, environ={}, cwd=tmp_path)
    assert str(home / FOLDER / "clusters.yaml") in str(caught.value)


def test_each_older_setting_that_is_set_gets_a_sentence_and_others_none(home: Path) -> None:
    assert ignored_settings({"SCHEDULER_OF_SOMEBODY_ELSE": "1", "HOME": "x"}, home=home) == []
    (told,) = ignored_settings({"SCHEDULER_EXECUTION_MODE": "serial"}, home=home)
    assert "max_running_jobs: 1" in told
    (home / FOLDER / "settings.yaml").touch()
    (told,) = ignored_settings({}, home=home)
    assert "settings.yaml is not read" in told


def test_the_settings_that_are_named_instead_exist() -> None:
    named = {
        word.strip("`")
        for text in INSTEAD.values()
        if "scheduler:" in text
        for word in text.split()
        if "_s`" in word
    }
    assert named
    assert named <= set(Settings.model_fields)
