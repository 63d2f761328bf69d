"""One request model: what a job can be asked for is written once, and every door has it."""

import ast
import inspect
import re

import pytest
from tests.unit.test_layers import SRC

from ray_multicluster_scheduler import submit_job
from ray_multicluster_scheduler.cli.options.submit import NOT_ON_THE_COMMAND_LINE, derived_options
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS, JobOption
from ray_multicluster_scheduler.server.v1.bodies import JobBody
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.views import JobDetail, JobView

ASKED = set(JobRequest.model_fields)
#: A job's record has shorter names for these.
RECORDED_AS = {"job_id": "name", "resource_requirements": "requirements"}


def test_submit_job_takes_each_field_and_nothing_else() -> None:
    assert set(inspect.signature(submit_job).parameters) == ASKED


@pytest.mark.parametrize("field", sorted(ASKED))
def test_the_docstring_of_submit_job_explains_each_argument(field: str) -> None:
    text = inspect.getdoc(submit_job) or ""
    assert re.search(rf"^    {field}: \S", text, re.MULTILINE)


def test_a_job_shows_each_field_that_it_was_asked_for() -> None:
    assert set(JobView.model_fields) >= ASKED
    assert set(JobDetail.model_fields) >= set(JobView.model_fields)


#: What makes a job the session of a Ray Client is not asked for: the server sees it.
OF_SESSIONS = {"executor", "client_address", "client_ray", "client_python"}


def test_a_record_of_a_job_keeps_each_field() -> None:
    kept = {RECORDED_AS.get(field, field) for field in ASKED - {"submission_id"}}
    assert set(JobSpec.__dataclass_fields__) == kept | OF_SESSIONS


def test_every_field_says_what_it_is() -> None:
    described = JobRequest.model_json_schema()["properties"]
    assert [name for name in ASKED if not described[name].get("description")] == []


def test_raymc_submit_has_an_option_for_each_field_or_a_reason_why_not() -> None:
    tree = ast.parse((SRC / "cli" / "commands" / "submit.py").read_text())
    (made,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"JobRequest", "lazy_imports.JobRequest"}
    )
    given = {keyword.arg for keyword in made.keywords if keyword.arg}
    derived = {option.name for option in derived_options()}
    assert not given & derived
    assert given | derived == ASKED - NOT_ON_THE_COMMAND_LINE.keys() | {"parent"}


@pytest.mark.parametrize("option", JOB_OPTIONS, ids=lambda option: option.name)
def test_an_option_is_written_once(option: JobOption) -> None:
    for record in (JobRequest, JobSpec, JobView):
        assert option.name not in vars(record).get("__annotations__", {})


def test_the_body_of_a_submission_over_http_is_the_same_model() -> None:
    assert set(JobBody.model_json_schema()["properties"]) == ASKED
