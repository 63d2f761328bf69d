"""Every error of ours has a status, and every answer that tells of one has the same shape."""

from collections.abc import Iterator

import pytest
import requests
from fastapi import FastAPI
from tests.support.serving import live
from tests.support.waiting import PATIENCE_S

from ray_multicluster_scheduler import errors
from ray_multicluster_scheduler.errors import SchedulerError
from ray_multicluster_scheduler.server import error_responses


def tree(kind: type[SchedulerError]) -> set[type[SchedulerError]]:
    return {kind}.union(*(tree(each) for each in kind.__subclasses__() if each.__module__ == errors.__name__))


def test_every_error_has_its_own_status() -> None:
    assert set(error_responses.STATUS) == tree(SchedulerError)


@pytest.mark.parametrize("kind", sorted(tree(SchedulerError), key=lambda kind: kind.__name__))
def test_what_the_caller_can_mend_is_the_callers_fault(kind: type[SchedulerError]) -> None:
    status = error_responses.STATUS[kind]
    assert 400 <= status < 600
    if issubclass(
        kind, (errors.InvalidRequest, errors.NotAuthenticated, errors.Forbidden, errors.JobNotFound)
    ):
        assert status < 500


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    app = FastAPI()
    error_responses.install(app)

    @app.get("/ours")
    def ours() -> None:
        raise errors.JobNotFound("tran", nearest="train")

    @app.get("/bug")
    def bug() -> None:
        raise RuntimeError("the password is swordfish")

    @app.get("/number/{n}")
    def number(n: int) -> int:
        return n

    with live(app) as found:
        yield found


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/ours", 404, "JobNotFound"),
        ("/nowhere", 404, "NotFound"),
        ("/number/swordfish", 422, "InvalidRequest"),
        ("/bug", 500, "InternalError"),
    ],
)
def test_every_error_has_one_shape_and_tells_no_secret(
    address: str, path: str, status: int, kind: str
) -> None:
    answer = requests.get(address + path, timeout=PATIENCE_S)
    assert answer.status_code == status
    told = answer.json()
    assert set(told) == {"error"}
    assert set(told["error"]) == {"type", "message", "details"}
    assert told["error"]["type"] == kind
    assert told["error"]["message"]
    assert "swordfish" not in answer.text
    assert "Traceback" not in answer.text


def test_the_details_are_the_data_of_the_error(address: str) -> None:
    told = requests.get(address + "/ours", timeout=PATIENCE_S).json()["error"]
    assert told["details"]["submission_id"] == "tran"
    assert "did you mean 'train'" in told["message"]
