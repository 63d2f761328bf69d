"""The parts of the page of one job that only compute."""

from typing import Any

import pytest

from ray_multicluster_scheduler.core.lifecycle.transitions import NOT_SENT, REPLACED, REQUEUED_OUTCOME
from ray_multicluster_scheduler.dashboard.decision_view import environment_rows
from ray_multicluster_scheduler.dashboard.job_relations import MOST_ON_A_SIDE, Relations, chart, limited
from ray_multicluster_scheduler.dashboard.pages.job_page import actions_of, options_text
from ray_multicluster_scheduler.dashboard.words import catalogue
from ray_multicluster_scheduler.model.decision import Cause
from ray_multicluster_scheduler.model.execution import FailureKind
from ray_multicluster_scheduler.model.job import Job, JobSpec
from ray_multicluster_scheduler.model.states import FINAL, JobState
from ray_multicluster_scheduler.service.make_views import show_job
from ray_multicluster_scheduler.service.views import JobView


def job(name: str = "one", state: JobState = JobState.QUEUED, **options: Any) -> JobView:
    spec = JobSpec(entrypoint="true", user="ann", **options)
    return show_job(Job(seq=1, submission_id=name, spec=spec, state=state, accepted_at=0, changed_at=0), ())


def others(count: int) -> dict[str, JobView | None]:
    return {f"job{number}": job(f"job{number}") for number in range(count)}


@pytest.mark.parametrize("state", JobState)
def test_what_may_be_done_fits_the_state(state: JobState) -> None:
    found = actions_of(job(state=state))
    assert ("delete" in found) == (state in FINAL)
    assert ("stop" in found) == (state not in FINAL)
    assert ("retry" in found) == (state in {JobState.FAILED, JobState.STOPPED})
    assert "clone" in found


def test_only_its_program_can_begin_a_session_again() -> None:
    ended = job(state=JobState.FAILED).model_copy(update={"repeatable": False})
    assert actions_of(ended) == {"delete"}


def test_each_variable_has_a_row_with_its_origin() -> None:
    env = {"conda": "ts", "pip": ["a", "b"], "env_vars": {"A": "1", "B": "<redacted>"}}
    origins = {"conda": "cluster", "pip": "both", "env_vars.A": "job"}
    assert environment_rows(env, origins) == [
        ("conda", "ts", "cluster"),
        ("pip", '["a", "b"]', "both"),
        ("env_vars.A", "1", "job"),
        ("env_vars.B", "<redacted>", ""),
    ]


def test_options_are_shown_where_they_are_not_the_default() -> None:
    assert options_text(job()) == ""
    assert options_text(job(max_retries=2, priority=5, tags=("x",))) == "max_retries: 2"


def test_few_relations_are_all_shown() -> None:
    found = limited({"needs": others(3), "parent": {}, "needed_by": others(2), "children": others(18)})
    assert not found.more
    assert [len(each) for each in found.kinds.values()] == [3, 0, 2, 18]
    assert limited({"needs": {}, "children": {}}).empty


def test_of_many_relations_each_kind_keeps_some_and_the_rest_is_told() -> None:
    found = limited({"needs": {}, "parent": {}, "needed_by": others(5), "children": others(100)})
    assert found.more
    assert len(found.kinds["needed_by"]) == 5
    assert len(found.kinds["children"]) == MOST_ON_A_SIDE - 5
    crowded = limited({"needed_by": others(100), "children": others(100)})
    assert [len(each) for each in crowded.kinds.values()] == [MOST_ON_A_SIDE // 2] * 2


def test_the_graph_goes_from_what_is_needed_to_what_needs_it() -> None:
    kinds = {"needs": {"a": None}, "needed_by": {"b": job("b")}, "children": {"b": job("b")}}
    drawn = chart(job(), Relations(kinds=kinds))["series"][0]
    assert [(node["id"], node["value"][0]) for node in drawn["data"]] == [("a", 0), ("one", 1), ("b", 2)]
    links = [(link["source"], link["target"], link["lineStyle"]["type"]) for link in drawn["links"]]
    assert links == [("a", "one", "solid"), ("one", "b", "solid"), ("one", "b", "dashed")]


def test_the_name_of_a_job_is_no_template_of_the_chart() -> None:
    named = job(name="x{a|b}")
    label = chart(job(), Relations(kinds={"needs": {"x": named}}))["series"][0]["data"][0]["label"]
    assert "{" not in label["formatter"]


def test_every_word_of_the_service_has_a_text() -> None:
    outcomes = {*FailureKind.__members__, *REQUEUED_OUTCOME.values(), NOT_SENT, REPLACED}
    outcomes |= {state.value for state in FINAL}
    needed = {f"outcomes.{each}" for each in outcomes} | {f"causes.{cause.value}" for cause in Cause}
    assert needed <= catalogue().keys()
