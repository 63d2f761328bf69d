"""From the texts of a form to a request, and back from a job."""

from typing import Any

import pytest
from tests.support.builders import a_job, a_spec

from ray_multicluster_scheduler.dashboard.job_form import (
    AMOUNTS,
    ENVIRONMENT,
    FIELDS,
    NOT_IN_THE_FORM,
    WHOLE,
    Filled,
    TextProblem,
    field_of,
    read_form,
    texts_of,
)
from ray_multicluster_scheduler.dashboard.words import catalogue
from ray_multicluster_scheduler.errors import (
    DependencyProblem,
    InvalidEntrypoint,
    InvalidRuntimeEnv,
    NeverFits,
    QuotaExceeded,
)
from ray_multicluster_scheduler.model.job_options import JOB_OPTIONS
from ray_multicluster_scheduler.model.resources import GIB
from ray_multicluster_scheduler.service.make_views import show_job
from ray_multicluster_scheduler.service.request import JobRequest

NAMES = {field.name for field in FIELDS}


def read(**texts: str) -> Filled:
    return read_form({"entrypoint": "sleep 1", **texts}, user="ann")


def request_of(**texts: str) -> JobRequest:
    filled = read(**texts)
    assert filled.request is not None, filled.problems
    return filled.request


def key_of(filled: Filled, field: str) -> str:
    problem = filled.problems[field]
    return problem.key if isinstance(problem, TextProblem) else str(problem)


def test_every_argument_of_a_job_has_a_field_or_a_reason_why_not() -> None:
    parts = {"resource_requirements"} | set(NOT_IN_THE_FORM)
    assert set(JobRequest.model_fields) - parts == NAMES - {*AMOUNTS, *ENVIRONMENT, "resources", "array"}


@pytest.mark.parametrize("option", JOB_OPTIONS, ids=lambda option: option.name)
def test_an_option_is_explained_in_the_same_words_as_everywhere(option: Any) -> None:
    if option.name in NAMES:
        assert catalogue()[f"submit.about_{option.name}"]["en"] == option.about


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_has_a_label_and_an_explanation(field: Any) -> None:
    assert {f"submit.{field.name}", f"submit.about_{field.name}"} <= catalogue().keys()


def test_what_is_left_empty_is_not_asked_for() -> None:
    assert request_of() == JobRequest(entrypoint="sleep 1", user="ann")


def test_all_fields_become_one_request() -> None:
    made = request_of(
        job_id=" train ",
        cpus="2",
        memory="0.5",
        resources="tpu=4",
        tags="fast, cheap",
        preferred_cluster="mac",
        priority="-3",
        depends_on="sub_1, sub_2",
        timeout_s="60",
        on_unreachable="90",
        env_vars="A=1",
        pip="requests\nnumpy==2.0",
        runtime_env="config: {setup_timeout_seconds: 60}",
        metadata="note=b=c",
        stop_children="true",
        entrypoint_resources="tpu=1",
        entrypoint_label_selector="zone=west",
    )
    assert made == JobRequest(
        entrypoint="sleep 1",
        user="ann",
        job_id="train",
        resource_requirements={"CPU": 2, "memory": 0.5, "tpu": 4},
        tags=("fast", "cheap"),
        preferred_cluster="mac",
        priority=-3,
        depends_on=("sub_1", "sub_2"),
        timeout_s=60,
        on_unreachable=90.0,
        runtime_env={
            "env_vars": {"A": "1"},
            "pip": ["requests", "numpy==2.0"],
            "config": {"setup_timeout_seconds": 60},
        },
        metadata={"note": "b=c"},
        stop_children=True,
        entrypoint_resources={"tpu": 1},
        entrypoint_label_selector={"zone": "west"},
    )


@pytest.mark.parametrize(
    ("field", "text", "says"),
    [
        ("entrypoint", " ", "the entrypoint is empty"),
        ("cpus", "-1", "must not be negative"),
        ("memory", "much", "submit.not_a_number"),
        ("resources", "tpu=-1", "must not be negative"),
        ("priority", "1.5", "must be a whole number"),
        ("max_retries", "-1", "must be a whole number from 0"),
        ("timeout_s", "0", "must be more than 0 seconds"),
        ("on_unreachable", "hope", "must be 'wait', 'fail'"),
        ("array", "5-1", "write the smaller number first"),
        ("pip", "{", "runtime_env: pip"),
        ("runtime_env", "pips: [a]", "unknown option 'pips'"),
        ("runtime_env", "pip: [a", "line 1"),
        ("metadata", "raymc.prio=1", "did you mean 'raymc.priority'"),
        ("entrypoint_label_selector", "zone=!", "Invalid label selector value"),
        ("env_vars", "KEY=<redacted>", "submit.redacted"),
        ("entrypoint", "curl https://<redacted>@host", "submit.redacted"),
    ],
)
def test_a_mistake_is_told_at_its_field(field: str, text: str, says: str) -> None:
    filled = read(**{field: text})
    assert filled.request is None
    assert filled.problems.keys() == {field}
    assert says in key_of(filled, field)


def test_all_mistakes_are_told_at_once() -> None:
    assert read(cpus="x", priority="y", env_vars="z").problems.keys() == {"cpus", "priority", "env_vars"}


def test_what_is_said_twice_is_told_where_it_can_be_mended() -> None:
    assert key_of(read(cpus="1", resources="CPU=2"), "resources") == "submit.said_twice"
    assert key_of(read(conda="a", runtime_env="conda: b"), "runtime_env") == "submit.said_twice"


def test_fields_that_contradict_each_other_are_told_above_the_form() -> None:
    assert "say different things" in key_of(read(priority="1", metadata="raymc.priority=2"), WHOLE)


def test_an_array_has_its_indices_and_no_other_group() -> None:
    assert list(read(entrypoint="work {i}", array="0-2,7").indices or ()) == [0, 1, 2, 7]
    assert (
        key_of(read(entrypoint="work {i}", array="0-2", group="mine"), "array") == "submit.array_has_a_group"
    )


def test_a_refusal_of_the_service_is_shown_at_the_field_that_its_kind_is_about() -> None:
    assert field_of(InvalidEntrypoint(""), {}) == "entrypoint"
    assert field_of(InvalidRuntimeEnv(""), {}) == "runtime_env"
    assert field_of(DependencyProblem(""), {}) == "depends_on"
    assert field_of(QuotaExceeded(""), {"cpus": "99"}) == WHOLE


def test_what_never_fits_is_said_at_the_only_amount_that_was_asked_for() -> None:
    assert field_of(NeverFits(""), {"entrypoint": "true", "cpus": "99", "gpus": " "}) == "cpus"
    assert field_of(NeverFits(""), {"cpus": "99", "gpus": "1"}) == WHOLE
    assert field_of(NeverFits(""), {"entrypoint": "true"}) == WHOLE


def test_a_job_fills_the_form_that_asks_for_it_again() -> None:
    spec = a_spec(
        entrypoint="python /data/train.py",
        name="train",
        requirements={"CPU": 2.0, "GPU": 0.5, "memory": 1.5 * GIB, "tpu": 4.0},
        runtime_env={
            "env_vars": {"A": "1", "B": "two\nlines"},
            "pip": ["requests"],
            "conda": "ts",
            "working_dir": "s3://bucket/code.zip",
        },
        metadata={"note": "x", "raymc.priority": "5", "raymc.retry_of": "sub_0"},
        tags=("a,b", "c"),
        preferred_cluster="gone",
        priority=5,
        depends_on=("sub_1",),
        max_retries=2,
        timeout_s=1.5,
        on_unreachable=60.0,
        group="sweep",
        stop_children=True,
        entrypoint_num_cpus=0.5,
        entrypoint_memory=2**30,
        entrypoint_resources={"tpu": 1.0},
        entrypoint_label_selector={"zone": "west"},
    )
    texts = texts_of(show_job(a_job(spec=spec), ()))
    made = read_form(texts, user="ann").request
    assert made is not None
    assert (made.entrypoint, made.job_id) == (spec.entrypoint, spec.name)
    assert made.resource_requirements == {"CPU": 2, "GPU": 0.5, "memory": 1.5, "tpu": 4}
    assert made.runtime_env == spec.runtime_env
    assert made.metadata == {"note": "x"}
    assert (made.entrypoint_resources, made.entrypoint_label_selector) == ({"tpu": 1}, {"zone": "west"})
    for option in JOB_OPTIONS:
        assert getattr(made, option.name) == getattr(spec, option.name)


def test_the_secrets_of_a_job_have_to_be_filled_in_anew() -> None:
    spec = a_spec(runtime_env={"env_vars": {"API_TOKEN": "hush-hush"}})
    texts = texts_of(show_job(a_job(spec=spec), ("hush-hush",)))
    assert "hush" not in str(texts)
    assert key_of(read_form(texts, user="ann"), "env_vars") == "submit.redacted"


def test_a_generated_name_is_not_taken_over() -> None:
    spec = a_spec(name="job_0123456789abcdef0123456789abcdef")
    assert texts_of(show_job(a_job(spec=spec), ()))["job_id"] == ""
