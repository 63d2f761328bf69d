"""What a pool learns of its actors: what an error says about them, and who else waits for their room."""

from concurrent.futures import Future
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayActorError, RayError, RayTaskError, TaskCancelledError
from tests.support.builders import a_cluster, a_snapshot

from ray_multicluster_scheduler.core.actor_pool import Demand
from ray_multicluster_scheduler.core.placement.capacity import Room, open_room
from ray_multicluster_scheduler.errors import HomeLost, SchedulerError
from ray_multicluster_scheduler.model.decision import ClusterView
from ray_multicluster_scheduler.tasks import pool_driver
from ray_multicluster_scheduler.tasks.pool_driver import Fate, RayActors
from ray_multicluster_scheduler.tasks.submitter import ActorAbout, TaskRequest
from ray_multicluster_scheduler.tasks.wire.serialization import (
    actor_lost_error,
    deserialize_error,
    serialize_error,
)


class Tasks:
    """What a pool asks of `TaskSubmitter`, here with two clusters and no Ray."""

    def __init__(self, rooms: tuple[Room, ...] = (), *, home_is_lost: bool = False) -> None:
        self.operations = self
        self.home_is_lost = home_is_lost
        self._rooms = rooms

    def about_actor(self, _: TaskRequest) -> ActorAbout:
        return ActorAbout(class_name="Model", methods={}, claim={}, max_concurrency=1)

    def rooms(self) -> tuple[Room, ...]:
        return self._rooms


def actors(waiting: list[Demand] | None = None, **tasks: Any) -> RayActors:
    return RayActors(Tasks(**tasks), TaskRequest(code=object), lambda: waiting or [])  # type: ignore[arg-type]


def raised_by_user(error: Exception) -> RayTaskError:
    return RayTaskError("predict", "Traceback (most recent call last): …", error)


def across(error: BaseException) -> RayTaskError:
    """What the program gets when the bridge raises this: Ray wraps it, unless it is wrapped already."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return RayTaskError("Bridge.call", str(error), cause)


def passed_on(error: BaseException, *, is_across: bool) -> BaseException:
    done: Future[Any] = Future()
    result: Future[Any] = Future()
    done.set_exception(error)
    pool_driver._pass_on(done, to=result, across=is_across)
    found = result.exception()
    assert found is not None
    return found


def from_hub(error: Exception) -> BaseException:
    return across(deserialize_error(serialize_error(error)))


@pytest.mark.parametrize(
    ("error", "is_across", "fate"),
    [
        pytest.param(raised_by_user(ValueError("x")), False, Fate.ALIVE, id="the user's"),
        pytest.param(raised_by_user(RayActorError()), False, Fate.ALIVE, id="of another actor"),
        pytest.param(ActorDiedError(), False, Fate.ACTOR_LOST, id="dead at home"),
        pytest.param(from_hub(raised_by_user(ValueError("x"))), True, Fate.ALIVE, id="the user's, far"),
        pytest.param(from_hub(raised_by_user(RayActorError())), True, Fate.ALIVE, id="of another, far"),
        pytest.param(from_hub(ActorDiedError()), True, Fate.ACTOR_LOST, id="dead, far"),
        pytest.param(
            across(actor_lost_error("b", "cut", sent=True)), True, Fate.CLUSTER_LOST, id="its cluster"
        ),
        pytest.param(across(actor_lost_error("b", "cut", sent=False)), True, Fate.ACTOR_LOST, id="unsent"),
        pytest.param(ActorDiedError(), True, Fate.ACTOR_LOST, id="the bridge"),
        pytest.param(TaskCancelledError(), False, Fate.ALIVE, id="cancelled"),
        pytest.param(TypeError("cannot pickle"), False, Fate.ALIVE, id="never sent"),
        pytest.param(HomeLost("a", "cut"), False, Fate.HOME_LOST, id="home"),
    ],
)
def test_an_error_tells_what_became_of_the_actor(error: BaseException, is_across: bool, fate: Fate) -> None:
    assert actors().fate(passed_on(error, is_across=is_across)) is fate


def test_an_error_of_the_user_is_caught_by_its_own_type() -> None:
    assert isinstance(passed_on(raised_by_user(ValueError("x")), is_across=False), ValueError)
    far = passed_on(from_hub(raised_by_user(KeyError("x"))), is_across=True)
    assert isinstance(far, KeyError)
    assert isinstance(far, RayError)


def test_without_home_nothing_is_called_any_more() -> None:
    gone = actors(home_is_lost=True)
    assert gone.fate(ActorDiedError()) is Fate.HOME_LOST
    with pytest.raises(SchedulerError, match="was stopped, or has lost its home"):
        gone.check()


def room(name: str, total: dict[str, float], pending: Any = None) -> Room:
    return open_room(ClusterView(spec=a_cluster(name), snapshot=a_snapshot(name, total, pending=pending)))


def test_others_wait_where_they_could_run_jobs_and_what_waits_inside_ray_alike() -> None:
    rooms = room("a", {"CPU": 4.0}, pending=(({"CPU": 1.0}, 7),)), room("b", {"CPU": 2.0})
    waiting = [
        Demand(claim={"CPU": 3.0}),
        Demand(claim={"CPU": 1.0}),
        Demand(claim={"CPU": 1.0}, clusters=frozenset({"b"})),
    ]
    free, demands = actors(waiting, rooms=rooms).surroundings()
    assert free == {"a": {"CPU": 4.0}, "b": {"CPU": 2.0}}
    assert [sorted(each.clusters or ()) for each in demands] == [["a"], ["a", "b"], ["b"], ["a"]]
