"""A placement rule is one function in one tuple: whoever decides about a place obeys it.

The rule is added here as CONTRIBUTING says, and nothing else is told of it.
"""

from pathlib import Path

import pytest
from tests.support.builders import NOW, a_queued, a_view
from tests.support.system import System, fake

from ray_multicluster_scheduler.core.placement import checks
from ray_multicluster_scheduler.core.placement.plan import placements
from ray_multicluster_scheduler.core.placement.queue import queue_of
from ray_multicluster_scheduler.core.placement.scoring import Rule
from ray_multicluster_scheduler.core.rules import PlanRules
from ray_multicluster_scheduler.model.decision import Cause, Refusal
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.tasks.placement import Versions, place

CLOSED = "guests are not welcome"


def is_open_to_guests(user: str, name: str) -> Refusal | None:
    """Cluster a is closed to guests: a rule that looks at a field no other rule looks at."""
    return Refusal(cause=Cause.DRAINED, sentence=CLOSED) if (user, name) == ("guest", "a") else None


@pytest.fixture(autouse=True)
def _with_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHECKS", (Rule(is_open_to_guests), *checks.CHECKS))


async def test_the_engine_explain_and_the_dry_run_obey_it(tmp_path: Path) -> None:
    async with System(tmp_path, fake("a", cpus=8), fake("b", cpus=1)) as system:
        asked = [{"entrypoint": "echo", "user": user} for user in ("guest", "ann", "guest", "ann")]
        ids = await system.submit_many(asked)
        jobs = await system.finished(*ids)
        assert [jobs[each].cluster for each in (ids[0], ids[2])] == ["b", "b"]
        assert "a" in {jobs[each].cluster for each in (ids[1], ids[3])}
        service = system.scheduler.service
        explained = service.explain(ids[0]).decision
        assert explained is not None
        assert explained.refusals["a"].sentence == CLOSED
        dry_run = service.plan(JobRequest(entrypoint="echo", user="guest"))
        assert dry_run.cluster == "b"
        assert dry_run.decision.refusals["a"].sentence == CLOSED


def test_jobs_that_only_this_rule_tells_apart_are_told_apart_by_the_planner() -> None:
    waiting = [a_queued(f"job-{n}", seq=n, user=user) for n, user in enumerate(("guest", "ann"))]
    lines = queue_of(waiting).lines(now=NOW)
    views = [a_view("a", {"CPU": 9.0}), a_view("b", {"CPU": 2.0})]
    decided = placements(lines, views, now=NOW, rules=PlanRules(), in_use={})
    assert {each.submission_id: each.cluster for each in decided} == {"job-0": "b", "job-1": "a"}


def test_tasks_and_actors_obey_it() -> None:
    views = [a_view("home", {"CPU": 0.5}), a_view("a", {"CPU": 9.0}), a_view("b")]
    ours = Versions(ray="2.60.0", python="3.12.3")
    decision = place(a_queued(user="guest"), views, home="home", ours=ours)
    assert decision.cluster == "b"
    assert decision.refusals["a"].sentence == CLOSED


def test_a_rule_that_looks_at_something_unknown_is_a_mistake_of_its_author() -> None:
    def wrong(moon: str) -> Refusal | None:
        return Refusal(cause=Cause.DRAINED, sentence=moon)

    with pytest.raises(TypeError, match="'wrong' looks at moon: no field of QueuedJob or ClusterView"):
        Rule(wrong)
