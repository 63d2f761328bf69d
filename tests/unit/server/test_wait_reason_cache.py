"""Why a queued job waits is found out once in a while, by one thread, and nobody waits for it for long."""

import threading
from typing import Any, cast

from ray_multicluster_scheduler.errors import JobNotFound
from ray_multicluster_scheduler.server import ray_jobs
from ray_multicluster_scheduler.server.ray_jobs import GOOD_FOR_S, WaitReasonCache
from ray_multicluster_scheduler.service.service import LocalService
from ray_multicluster_scheduler.service.views import JobView


class Explaining:
    """A service that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.begun = threading.Event()

    def explain(self, submission_id: str) -> Any:
        self.asked += 1
        self.begun.set()
        self.may_answer.wait(60)
        if submission_id == "gone":
            raise JobNotFound(submission_id)
        return type("Told", (), {"position": self.asked, "why": "all clusters are full"})()


class Job:
    """As much of a job as matters here."""

    def __init__(self, submission_id: str = "one", changed_at: float = 1.0) -> None:
        self.submission_id = submission_id
        self.changed_at = changed_at
        self.message = "accepted"


class World:
    def __init__(self) -> None:
        self.now = 100.0
        self.service = Explaining()
        self._wait_reasons = WaitReasonCache(now=lambda: self.now)

    def why(self, job: Job) -> str:
        return self._wait_reasons.reason(cast(LocalService, self.service), cast(JobView, job))


def test_it_is_found_out_once_in_a_while() -> None:
    world = World()
    assert world.why(Job()) == "Number 1 in the queue: all clusters are full."
    assert world.why(Job()) == "Number 1 in the queue: all clusters are full."
    world.now += GOOD_FOR_S
    assert world.why(Job()) == "Number 2 in the queue: all clusters are full."


def test_a_job_that_has_moved_is_asked_about_again() -> None:
    world = World()
    world.why(Job(changed_at=1.0))
    world.why(Job(changed_at=2.0))
    assert world.service.asked == 2


def test_a_job_that_has_left_the_queue_has_its_last_reason() -> None:
    assert World().why(Job("gone")) == "accepted"


def test_who_finds_another_one_asking_does_not_wait_for_long(monkeypatch: Any) -> None:
    monkeypatch.setattr(ray_jobs, "PATIENCE_S", 0.01)
    world = World()
    world.service.may_answer.clear()
    first = threading.Thread(target=world.why, args=(Job(),))
    first.start()
    world.service.begun.wait(60)

    assert world.why(Job("two")) == "accepted"

    world.service.may_answer.set()
    first.join()
    assert world.service.asked == 1
