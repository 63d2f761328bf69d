"""A first connection that fails is tried again, because a cluster that has just started refuses some."""

import pytest

from ray_multicluster_scheduler.tasks.wire.sessions import connect_with_retries


class Cluster:
    """Refuses the first sessions."""

    def __init__(self, problem: Exception, times: int) -> None:
        self._problem = problem
        self._left = times

    def connect(self) -> str:
        if self._left:
            self._left -= 1
            raise self._problem
        return "session"


@pytest.mark.parametrize(
    "problem",
    [
        ConnectionAbortedError("Initialization failure from server: Starting Ray client server failed."),
        RuntimeError("Starting Ray client server failed."),
    ],
)
def test_a_session_that_cannot_be_started_yet_is_tried_again(problem: Exception) -> None:
    assert connect_with_retries(Cluster(problem, times=3).connect, pause_s=0) == "session"


def test_after_its_time_the_problem_is_told() -> None:
    with pytest.raises(ConnectionError, match="nobody there"):
        connect_with_retries(
            Cluster(ConnectionError("nobody there"), times=3).connect, timeout_s=0, pause_s=0
        )


def test_an_environment_that_cannot_be_set_up_is_told_at_once() -> None:
    problem = ConnectionAbortedError("Failed to create runtime_env for Ray client server: no such package")
    with pytest.raises(ConnectionError, match="no such package"):
        connect_with_retries(Cluster(problem, times=1).connect, pause_s=0)


def test_any_other_mistake_is_told_at_once() -> None:
    with pytest.raises(TypeError):
        connect_with_retries(Cluster(TypeError("no such option"), times=1).connect, pause_s=0)
