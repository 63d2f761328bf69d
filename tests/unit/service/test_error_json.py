"""An error crosses HTTP as itself: its class, its message, its attributes."""

import json

import pytest

from ray_multicluster_scheduler import errors
from ray_multicluster_scheduler.errors import SchedulerError, error_from, error_json

EXAMPLES = [
    errors.ConfigError("no"),
    errors.ConfigNotFound(["/a", "/b"]),
    errors.ConfigInvalid("/a/clusters.yaml", ["line 1: no"]),
    errors.InvalidRequest("no"),
    errors.InvalidRuntimeEnv("no"),
    errors.InvalidEntrypoint("no"),
    errors.InvalidResources("no"),
    errors.NeverFits("no"),
    errors.DuplicateSubmission("no"),
    errors.DependencyProblem("no"),
    errors.PackageProblem("no"),
    errors.QuotaExceeded("no"),
    errors.TooManyRequests("later"),
    errors.JobNotFound("tran", nearest="train"),
    errors.NotAuthenticated("who are you?"),
    errors.Forbidden("no"),
    errors.JobsFailed("one failed", ["a", "b"]),
    errors.WaitTimeout("late", ["a"], failed=["b"]),
    errors.NoClusterAvailable("none"),
    errors.NoQueueHere("job-1"),
    errors.SchedulerNotStarted.because("no memory"),
    errors.HomeLost("a", "gone"),
    errors.ItemFailed("item 0 failed", item=3, number=0, cluster="a", traceback="Traceback"),
    errors.ClusterError("a", "no"),
    errors.ClusterUnreachable("a", "no", refused=True),
    errors.ClusterTimeout("a", "no"),
    errors.ClusterAuthFailed("a", "no"),
    errors.ClusterBadAnswer("a", "no"),
    errors.OutcomeUnknown("a", "no"),
    errors.ClusterRefused("a", "no", status=500, body="why"),
    errors.RemoteJobExists("a", "no", status=400),
    errors.RemoteJobNotFound("a", "no", status=404),
    errors.ServerError("http://a", "no"),
    errors.ServerUnreachable("http://a", "no"),
    errors.ServerTimeout("http://a", "no"),
    errors.ServerLost("http://a", "no"),
    errors.ServerBadAnswer("http://a", "no"),
    errors.PipelineFailed("no"),
    errors.StoreError("no"),
    errors.StoreBusy("no"),
    errors.StoreOutcomeUnknown("no"),
    errors.StaleTransition("no"),
    errors.LeaseLost("no"),
    errors.ForeignStore("no"),
    errors.SandboxError("no"),
]


def tree(kind: type[SchedulerError]) -> set[type[SchedulerError]]:
    return {kind}.union(*(tree(each) for each in kind.__subclasses__() if each.__module__ == errors.__name__))


def test_every_class_of_the_tree_has_an_example() -> None:
    assert {type(each) for each in EXAMPLES} == tree(SchedulerError) - {SchedulerError}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_that_crossed_is_the_same(error: SchedulerError) -> None:
    again = error_from(json.loads(json.dumps(error_json(error))))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_class_of_a_newer_server_keeps_its_message() -> None:
    error = error_from({"error": {"type": "MoonPhase", "message": "not today", "details": {"phase": 3}}})
    assert type(error) is SchedulerError
    assert str(error) == "not today"


@pytest.mark.parametrize("body", [None, 5, [], {}, {"error": "no"}, {"error": {"message": 5}}])
def test_a_body_that_tells_of_no_error_is_told_apart(body: object) -> None:
    assert error_from(body) is None
