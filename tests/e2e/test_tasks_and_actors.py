"""Tasks and actors on three real clusters: where they run, what comes back, and what is left behind."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.task_world import World, a_world, finish
from tests.support.waiting import until

from ray_multicluster_scheduler.local import HeadSpec, Sandbox

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

#: Two of them have a token, each its own.
HEADS = [
    HeadSpec(name="home", cpus=2, token="a-token-of-home"),
    HeadSpec(name="other", cpus=4),
    HeadSpec(name="third", cpus=1, token="a-token-of-the-third"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("tasks")
    with Sandbox(folder / "sandbox", HEADS) as sandbox, a_world(sandbox, folder, HEADS) as world:
        yield world


@pytest.fixture(scope="module")
def found(world: World) -> Any:
    """What the program `mixture.py` found out, running as a job at home."""
    return world.run("mixture.py", cluster="home")


def test_what_home_cannot_hold_goes_to_another_cluster_over_one_session(world: World) -> None:
    world.note("go").unlink(missing_ok=True)
    job = world.submit("more_than_home.py", 5, cluster="home")
    until(world.note("all-submitted").exists)
    sessions = {head.name: len(world.sessions(head.name)) for head in HEADS}
    world.note("go").write_text("")
    answer = world.answer(job)

    home = world.head("home").gcs_address
    places = [gcs for _, gcs in answer["results"]]
    assert [index for index, _ in answer["results"]] == list(range(5))
    assert places[:2] == [home, home]
    assert home not in places[2:]
    assert sessions["home"] == 0
    assert [sessions[name] for name in ("other", "third")].count(1) == len(set(places)) - 1
    assert max(sessions.values()) == 1
    assert [why["reason"] for why in answer["why"][:2]] == ["home has room"] * 2
    assert all(why["clusters"]["home"]["cause"] == "NO_ROOM" for why in answer["why"][2:])
    assert len(answer["actors"]) == 5
    assert {"RayTaskError", "ValueError"} <= set(answer["failure"])
    world.wait_until_no_session_is_left()


def test_one_ray_get_takes_refs_of_three_clusters(world: World, found: Any) -> None:
    home, other, third = (world.head(name).gcs_address for name in ("home", "other", "third"))
    assert found["one_get"] == [home, home, other, third, third]


def test_one_ray_wait_takes_refs_of_three_clusters(found: Any) -> None:
    assert found["one_wait"] == [2, True]


def test_calls_of_one_handle_start_in_their_order(found: Any) -> None:
    assert found["order"] is True
    assert found["a_late_argument_keeps_its_place"] == [[2, 3], [0, "slept", "second"]]


def test_no_call_overtakes_the_creation_of_its_actor_and_no_release_the_last_call(found: Any) -> None:
    assert found["nothing_overtakes_the_creation"] == ["slept"]


def test_an_actor_that_could_not_be_created_is_a_dead_actor(found: Any) -> None:
    assert "RayActorError" in found["a_failed_creation"]


def test_a_method_may_have_any_name(found: Any) -> None:
    assert found["any_name_of_a_method"] == "the user's"


def test_refs_can_be_arguments_and_inside_of_arguments_and_results(found: Any) -> None:
    assert found["refs_as_arguments"] == [True, 22, 7]


def test_a_hundred_megabytes_go_both_ways(found: Any) -> None:
    assert found["large_values"] == [1e8, 1e8]


def test_exceptions_have_their_own_type(found: Any) -> None:
    value, own, task = found["exceptions"]
    assert {"RayTaskError", "ValueError"} <= set(value)
    assert {"RayTaskError", "OwnError"} <= set(own)
    assert {"RayTaskError", "KeyError"} <= set(task)


def test_several_results_are_several_refs(found: Any) -> None:
    assert found["several_returns"] == [["first", "second"], [1, 2, 3], ["first", "second"]]


def test_async_methods_do_not_hold_each_other_up(found: Any) -> None:
    assert found["async_methods"] == "opened"


def test_slow_calls_hold_up_no_fast_ones_and_get_their_answers_when_they_are_done(found: Any) -> None:
    assert found["slow_and_fast"] == [500, 0, ["opened"]]


def test_a_method_that_yields_is_refused_at_the_call(found: Any) -> None:
    assert "TypeError" in found["generators"]


def test_a_handle_works_in_tasks_at_home_and_beside_its_actor_and_is_refused_elsewhere(
    world: World, found: Any
) -> None:
    other = world.head("other").gcs_address
    by_task, beside, elsewhere, home_actor = found["handles_travel"]
    assert [by_task, beside] == [other, other]
    assert "TypeError" in elsewhere
    assert "TypeError" in home_actor


def test_a_killed_actor_is_a_dead_actor(found: Any) -> None:
    assert "RayActorError" in found["killing"]


def test_a_name_is_taken_once(world: World, found: Any) -> None:
    assert found["names"][0] == world.head("other").gcs_address
    assert "ValueError" in found["names"][1]


def test_tasks_are_cancelled_by_id_and_by_ref(found: Any) -> None:
    running, kinds, cancelled = found["cancelling"]
    assert running
    assert ["TaskCancelledError" in kind or "WorkerCrashedError" in kind for kind in kinds] == [True] * 3
    assert cancelled


def test_an_actor_without_a_handle_ends_after_its_last_call(found: Any) -> None:
    assert found["giving_up"] == [True, "slept", True]


def test_nothing_is_left_on_any_cluster_after_the_job(world: World, found: Any) -> None:
    assert found
    world.wait_until_no_session_is_left()


def test_a_program_that_is_no_job_gets_one_session_at_home_which_ends_with_stop(world: World) -> None:
    world.note("stopped").unlink(missing_ok=True)
    program = world.outside("outside.py", RAY_MULTICLUSTER_HOME=str(world.folder / "outside"))
    until(lambda: world.note("at-work").exists() or program.poll() is not None)
    sessions = {head.name: len(world.sessions(head.name)) for head in HEADS}
    world.note("go-on").write_text("")
    answer = finish(program)
    assert answer["result"] == world.head(answer["home"]).gcs_address
    assert answer["env"] == answer["home"]
    assert sessions == {head.name: int(head.name == answer["home"]) for head in HEADS}
    assert answer["ray_after_stop"] is False
    world.wait_until_no_session_is_left()


def test_a_program_that_has_joined_a_cluster_keeps_it_as_home(world: World) -> None:
    program = world.outside(
        "already_joined.py", world.head("other").client_address, RAY_MULTICLUSTER_HOME=str(world.folder / "x")
    )
    answer = finish(program)
    other, home = world.head("other").gcs_address, world.head("home").gcs_address
    assert answer == {"near": other, "far": home, "near_is": "other", "still_joined": True}
