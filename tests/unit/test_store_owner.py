"""A directory of jobs remembers its clusters.yaml: a file that has moved finds its jobs again."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ray_multicluster_scheduler.config import Config, load_config
from ray_multicluster_scheduler.config.find import sandbox_is_down, state_dir
from ray_multicluster_scheduler.config.store_place import (
    FILE,
    MOST_TOLD,
    kept_apart,
    remember,
    same_address,
    store_place,
)

TWO = {"a": "http://a.example:8265", "b": "http://b.example:8265"}


class Machine:
    """A home, and files that somebody writes, opens and moves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.environ = {"RAY_MULTICLUSTER_HOME": str(self.home)}

    def write(self, name: str, clusters: dict[str, str] = TWO, *, more: str = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        entries = [
            f"  {cluster}: {{head_address: 'h:10001', dashboard: '{url}'}}"
            for cluster, url in clusters.items()
        ]
        path.write_text("\n".join(["clusters:", *entries, more]))
        return path

    def config(self, path: Path) -> Config:
        return load_config(path)

    def open(self, path: Path, **environ: str) -> Path:
        """Open the store of a file as a program does; return where it is."""
        config, environ = self.config(path), {**self.environ, **environ}
        place = store_place(config, environ)
        place.directory.mkdir(parents=True, exist_ok=True)
        remember(config, place, environ)
        return place.directory

    def apart(self, path: Path, **environ: str) -> tuple[str, ...]:
        """What whoever submits with this file is told."""
        config, environ = self.config(path), {**self.environ, **environ}
        return kept_apart(config, store_place(config, environ), environ)

    def stores(self) -> list[Path]:
        return [each for each in self.home.iterdir() if each.is_dir() and not each.is_symlink()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_file_that_has_moved_brings_its_jobs_along_and_says_so_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    old = machine.write("one/clusters.yaml")
    where = machine.open(old)
    new = machine.root / "two" / "renamed.yaml"
    new.parent.mkdir()
    old.rename(new)
    assert machine.open(new) == where.resolve()
    assert caplog.messages == [f"{new} was at {old}; its jobs are found in {where.resolve()}"]
    assert machine.open(new) == where.resolve()
    assert state_dir(new, machine.environ) == where.resolve()
    assert len(caplog.messages) == 1

    third = machine.root / "third.yaml"  # a second time, and with its folder
    new.rename(third)
    assert machine.open(third) == where.resolve()
    third.rename(old)
    assert machine.open(old) == where
    assert machine.stores() == [where]


def test_a_directory_that_was_renamed_is_a_file_that_has_moved(machine: Machine) -> None:
    where = machine.open(machine.write("one/clusters.yaml"))
    (machine.root / "one").rename(machine.root / "uno")
    assert machine.open(machine.root / "uno" / "clusters.yaml") == where.resolve()


def test_a_copy_begins_anew(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    where = machine.open(machine.write("one/clusters.yaml"))
    assert machine.open(machine.write("two/clusters.yaml")) != where.resolve()
    assert caplog.messages == []


@pytest.mark.parametrize(
    "clusters",
    [
        {"a": TWO["a"]},
        {**TWO, "c": "http://c.example:8265"},
        {"a": TWO["b"], "b": TWO["a"]},
        {"x": TWO["a"], "b": TWO["b"]},
    ],
)
def test_a_file_with_other_clusters_begins_anew(machine: Machine, clusters: dict[str, str]) -> None:
    old = machine.write("one/clusters.yaml")
    where = machine.open(old)
    old.unlink()
    assert machine.open(machine.write("two/clusters.yaml", clusters)) != where.resolve()


def test_two_that_may_have_moved_are_told_and_neither_is_taken(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    old = [machine.write(f"{name}/clusters.yaml") for name in ("one", "two")]
    where = [machine.open(path) for path in old]
    for path in old:
        path.unlink()
    new = machine.write("three/clusters.yaml")
    assert machine.open(new) not in [each.resolve() for each in where]
    (message,) = caplog.messages
    assert all(str(path) in message for path in (*old, new))
    assert "begins with an empty queue" in message


def test_a_file_keeps_the_directory_that_it_has(machine: Machine) -> None:
    one, two = machine.write("one/clusters.yaml"), machine.write("two/clusters.yaml")
    machine.open(one)
    where = machine.open(two)
    one.unlink()
    assert machine.open(two) == where


@pytest.mark.parametrize("place", ["settings", "variable"])
def test_a_store_that_was_named_is_used_as_it_is_named(machine: Machine, place: str) -> None:
    old = machine.write("one/clusters.yaml")
    machine.open(old)
    old.unlink()
    other = machine.root / "named"
    more = f"scheduler: {{store: '{other}'}}" if place == "settings" else ""
    environ = {"RAY_MULTICLUSTER_STORE": str(other)} if place == "variable" else {}
    assert machine.open(machine.write("two/clusters.yaml", more=more), **environ) == other
    assert not (other / FILE).exists(), "any number of files may name it"
    assert not list(machine.home.glob("two-*"))


def test_another_home_is_another_world(machine: Machine) -> None:
    old = machine.write("one/clusters.yaml")
    where = machine.open(old)
    old.unlink()
    elsewhere = machine.root / "elsewhere"
    new = machine.write("two/clusters.yaml")
    assert machine.open(new, RAY_MULTICLUSTER_HOME=str(elsewhere)).parent == elsewhere
    assert machine.stores() == [where]


def test_a_file_of_another_machine_is_not_gone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    old = machine.write("one/clusters.yaml")
    where = machine.open(old)
    old.unlink()
    monkeypatch.setattr("socket.gethostname", lambda: "another-machine")
    assert machine.open(machine.write("two/clusters.yaml")) != where.resolve()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[" * 100_000,
        "null",
        "[]",
        "{}",
        '{"path": 1, "clusters": {}, "host": "h"}',
        '{"path": "\\u0000", "clusters": {}, "host": "h"}',
        '{"path": "/x", "clusters": {"a": 1}, "host": "h"}',
        '{"path": "/x", "clusters": [], "host": "h"}',
        "x" * 3_000_000,
    ],
    ids=lambda content: content[:20],
)
def test_a_damaged_memory_is_no_memory_and_is_written_anew(machine: Machine, content: str) -> None:
    old = machine.write("one/clusters.yaml")
    where = machine.open(old)
    (where / FILE).write_text(content)
    assert machine.open(machine.write("two/clusters.yaml")) != where
    assert machine.open(old) == where
    assert json.loads((where / FILE).read_text())["path"] == str(old)


def test_what_is_remembered_follows_the_file(machine: Machine) -> None:
    path = machine.write("one/clusters.yaml")
    where = machine.open(path)
    before = (where / FILE).stat().st_mtime_ns
    machine.open(path)
    assert (where / FILE).stat().st_mtime_ns == before
    machine.write("one/clusters.yaml", {"a": TWO["a"]})
    machine.open(path)
    assert json.loads((where / FILE).read_text())["clusters"] == {"a": TWO["a"]}
    assert [each.name for each in where.iterdir()] == [FILE]


def test_a_link_whose_directory_is_gone_leads_to_a_new_one(machine: Machine) -> None:
    old = machine.write("one/clusters.yaml")
    where = machine.open(old)
    new = machine.root / "new.yaml"
    old.rename(new)
    machine.open(new)
    (where / FILE).unlink()
    where.rmdir()
    assert machine.open(new) == where.resolve()


def test_another_queue_on_the_same_cluster_is_told_with_the_line_that_shares_it(machine: Machine) -> None:
    one = machine.write("one/clusters.yaml", {"centos": "http://localhost:8265/", "b": TWO["b"]})
    two = machine.write("two/clusters.yaml", {"mine": "http://127.0.0.1:8265", "c": "http://c.example:8265"})
    where = machine.open(one)
    assert machine.apart(one) == ()
    machine.open(two)
    assert machine.apart(two) == (
        f"cluster 'mine' is also in {one}, whose jobs are kept apart; to share one queue, write "
        f"`store: {where.resolve()}` under `scheduler:` in {two}",
    )
    assert [sentence[:44] for sentence in machine.apart(one)] == [f"cluster 'centos' is also in {two}"[:44]]


def test_several_clusters_are_told_in_one_sentence_and_some_files_only(machine: Machine) -> None:
    mine = machine.write("mine.yaml")
    for number in range(MOST_TOLD + 2):
        machine.open(machine.write(f"{number}/clusters.yaml"))
    told = machine.apart(mine)
    assert len(told) == MOST_TOLD
    assert told[0].startswith("clusters 'a', 'b' are also in ")


def test_who_follows_that_advice_is_told_no_more(machine: Machine) -> None:
    one, two = machine.write("one/clusters.yaml"), machine.write("two/clusters.yaml")
    where = machine.open(one)
    machine.open(two)
    machine.write("two/clusters.yaml", more=f"scheduler: {{store: '{where}'}}")
    assert machine.open(two) == where
    assert machine.apart(two) == machine.apart(one) == ()


def test_a_file_that_is_gone_or_names_other_clusters_now_is_not_told(machine: Machine) -> None:
    one, two = machine.write("one/clusters.yaml"), machine.write("two/clusters.yaml")
    machine.open(one)
    machine.open(two)
    machine.write("one/clusters.yaml", {"c": "http://c.example:8265"})
    machine.open(one)
    assert machine.apart(two) == ()
    machine.write("one/clusters.yaml")
    machine.open(one)
    assert len(machine.apart(two)) == 1
    one.unlink()
    assert machine.apart(two) == ()


def test_a_file_that_has_moved_is_not_its_own_rival(machine: Machine) -> None:
    old = machine.write("one/clusters.yaml")
    machine.open(old)
    new = machine.root / "new.yaml"
    old.rename(new)
    machine.open(new)
    assert machine.apart(new) == ()


def test_the_address_of_a_database_is_not_told(machine: Machine) -> None:
    one, two = machine.write("one/clusters.yaml"), machine.write("two/clusters.yaml")
    machine.open(one)
    url = "postgresql://ann:sesame@db.example/raymc"
    (told,) = machine.apart(two, RAY_MULTICLUSTER_STORE=url)
    assert told.endswith(f"write the `store` of {two} under `scheduler:` in {one}")
    machine.open(one, RAY_MULTICLUSTER_STORE=url)  # now both are in the database
    assert machine.apart(two, RAY_MULTICLUSTER_STORE=url) == ()


@pytest.mark.parametrize(
    "alike",
    [
        ("http://localhost:8265", "http://127.0.0.1:8265/", "HTTP://LocalHost:8265", "http://[::1]:8265"),
        ("https://head.example/ray", "https://HEAD.example:443/ray/"),
        ("http://head.example", "http://head.example:80/"),
    ],
)
def test_spellings_of_one_address_are_one(alike: Sequence[str]) -> None:
    assert len(set(map(same_address, alike))) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://a:8265", "http://a:8266"),
        ("http://a:8265", "https://a:8265"),
        ("http://a:8265/x", "http://a:8265/y"),
        ("http://[", "http://a"),
    ],
)
def test_other_addresses_are_other_ones(one: str, other: str) -> None:
    assert same_address(one) != same_address(other)


def test_a_sandbox_is_down_while_its_state_is_gone(machine: Machine) -> None:
    path = machine.write("home/local/clusters.yaml")
    assert sandbox_is_down(path, machine.environ)
    (path.parent / "state.json").touch()
    assert not sandbox_is_down(path, machine.environ)
    assert not sandbox_is_down(machine.write("clusters.yaml"), machine.environ)


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> Any:
    with caplog.at_level(logging.WARNING):
        yield
