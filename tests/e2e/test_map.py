"""`map_over_clusters` on two real clusters."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.task_world import PATIENCE_S, World, a_world, finish
from tests.support.waiting import until

import ray_multicluster_scheduler as raymc
from ray_multicluster_scheduler.local import HeadSpec, Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


@pytest.fixture
def world(sandbox: Sandbox, tmp_path: Path) -> Iterator[World]:
    with a_world(sandbox, tmp_path) as world:
        yield world


def test_a_map_runs_on_both_clusters_with_what_its_items_share(world: World) -> None:
    world.wait_until_idle("centos")
    world.wait_until_idle("mac")
    found = world.run("maps.py", cluster="mac")
    assert found["values"] == [7, 499_999]
    assert found["away"]
    assert found["errors"] == [
        "ValueError: -1 is negative",
        "TypeError: it cannot be pickled",
        "TypeError: it cannot be pickled",
    ]
    assert found["cause"]["cluster"] in {"centos", "mac"}
    assert 'raise ValueError(f"{item} is negative")' in found["cause"]["traceback"]
    assert found["sum"] == sum(number**2 for number in range(200))
    assert found["where"] == sorted(head.gcs_address for head in world.sandbox.heads.values())


@pytest.mark.slow
def test_a_grid_search_over_both_clusters_finds_what_it_finds_locally(world: World) -> None:
    world.wait_until_idle("centos")
    world.wait_until_idle("mac")
    found = finish(world.outside("grid_search.py", RAY_MULTICLUSTER_HOME=str(world.folder / "outside")))
    assert found["slots"] == 6
    assert found["equal"]


@pytest.fixture
def breakable(tmp_path: Path) -> Iterator[World]:
    """Two clusters of this test's own: it kills one."""
    heads = [HeadSpec(name="home", cpus=2), HeadSpec(name="other", cpus=2)]
    with Sandbox(tmp_path / "sandbox", heads) as running, a_world(running, tmp_path) as world:
        yield world


def check(world: World, log: str, lost: str) -> None:
    """Every item was run; what was run twice was in flight on the lost cluster, and the log tells it."""
    lines = [line.split() for line in world.note("maps").read_text().splitlines()]
    runs = Counter(int(item) for item, _ in lines)
    assert set(runs) == set(range(2_000))
    first_on = {int(item): cluster for item, cluster in reversed(lines)}
    twice = {item for item, times in runs.items() if times > 1}
    told = re.findall(
        rf"lost (?:a worker|\d+ workers) on cluster '{lost}' \(.*\): (\d+) items in flight are run again", log
    )
    assert told, log
    assert len(twice) <= sum(map(int, told))
    assert {first_on[item] for item in twice} <= {lost}
    assert max(runs.values()) <= 2
    assert re.search(r"map: 2,000 of 2,000 items, .* run again: lost ", log)


@pytest.mark.slow
def test_a_head_that_is_killed_in_the_middle_costs_nothing_but_what_was_in_flight_there(
    breakable: World,
) -> None:
    job = breakable.submit("map_with_a_loss.py", "home", cluster="home")
    until(lambda: breakable.note("in-the-middle").exists() or raymc.get_job_status(job) == "FAILED")
    breakable.sandbox.kill("other")
    assert breakable.answer(job) is True
    check(breakable, raymc.get_job_info(job)["logs"], lost="other")


@pytest.mark.slow
def test_a_program_that_loses_its_home_goes_on_with_the_other_cluster(breakable: World) -> None:
    state = str(breakable.folder / "outside")
    program = breakable.outside("map_with_a_loss.py", "other", RAY_MULTICLUSTER_HOME=state)
    until(lambda: breakable.note("in-the-middle").exists() or program.poll() is not None)
    breakable.sandbox.kill("other")
    log, _ = program.communicate(timeout=2 * PATIENCE_S)
    assert "answer:true" in log, log
    runs = Counter(int(line.split()[0]) for line in breakable.note("maps").read_text().splitlines())
    assert set(runs) == set(range(2_000))
    told = re.findall(r"^WARNING.*: (\d+) items in flight are run again", log, re.MULTILINE)
    assert sum(times - 1 for times in runs.values()) <= sum(map(int, told))
