"""Names, signatures and import paths that users already have in their programs."""

import inspect
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel
from tests.compat import public_names

import ray_multicluster_scheduler as package
from ray_multicluster_scheduler import JobInfo, aio
from ray_multicluster_scheduler.app.client_api.submit_job import (
    get_job_info,
    get_job_status,
    graceful_shutdown_on_keyboard_interrupt,
    stop_job,
    submit_job,
    wait_for_all_jobs,
)
from ray_multicluster_scheduler.app.client_api.unified_scheduler import (
    initialize_scheduler_environment,
)
from ray_multicluster_scheduler.model.job_options import OnUnreachable
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.views import JobDetail

SEED_ARGUMENTS = [
    "entrypoint",
    "runtime_env",
    "job_id",
    "metadata",
    "submission_id",
    "preferred_cluster",
    "resource_requirements",
    "tags",
]
OURS = {
    "priority", "depends_on", "max_retries", "timeout_s", "queue_timeout_s", "user", "on_unreachable",
    "entrypoint_num_cpus", "entrypoint_num_gpus", "entrypoint_memory", "entrypoint_resources",
    "idempotency_key",
}  # fmt: skip


def names(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_submit_job_takes_the_documented_arguments_in_their_order() -> None:
    assert names(submit_job)[: len(SEED_ARGUMENTS)] == SEED_ARGUMENTS


def test_what_we_added_to_submit_job_can_only_be_given_by_name() -> None:
    added = inspect.signature(submit_job).parameters.values()
    by_name = {each.name for each in added if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert by_name >= OURS
    assert not by_name & set(SEED_ARGUMENTS)


@pytest.mark.parametrize("function", [get_job_status, get_job_info, stop_job])
def test_the_cluster_name_may_be_given_and_left_out(function: object) -> None:
    assert names(function) == ["submission_id", "cluster_name"]
    assert inspect.signature(function).parameters["cluster_name"].default is None  # type: ignore[arg-type]


def test_waiting_has_the_documented_arguments_and_defaults() -> None:
    parameters = inspect.signature(wait_for_all_jobs).parameters
    assert {name: each.default for name, each in parameters.items()} == {
        "submission_ids": inspect.Parameter.empty,
        "check_interval": 5,
        "timeout": None,
        "fail_fast": True,
    }


def test_initialising_takes_a_configuration_file_or_nothing() -> None:
    assert names(initialize_scheduler_environment) == ["config_file_path"]


def test_the_old_paths_and_the_package_give_the_same_functions() -> None:
    assert package.submit_job is submit_job
    assert package.initialize_scheduler_environment is initialize_scheduler_environment
    assert package.graceful_shutdown_on_keyboard_interrupt is graceful_shutdown_on_keyboard_interrupt


def test_everything_in_all_is_there_and_documented() -> None:
    for name in package.__all__:
        assert inspect.getdoc(getattr(package, name)), name


#: Nothing of them waits, or is to be awaited.
SAME = {"MultiClusterExecutor", "put_everywhere"}


def test_every_blocking_function_has_its_async_twin() -> None:
    quick = {"get_unified_scheduler", "graceful_shutdown_on_keyboard_interrupt"}
    generators = {"map_over_clusters", "tail_job_logs"}
    classes = {"ActorPool", "Job", "JobInfo", "Jobs"}
    for name in set(package.__all__) - quick - generators - classes - SAME:
        assert inspect.iscoroutinefunction(getattr(aio, name)), name
    assert all(inspect.isasyncgenfunction(getattr(aio, name)) for name in generators)
    assert all(getattr(aio, name) is getattr(package, name) for name in SAME)


@pytest.mark.parametrize("name", ["Job", "Jobs"])
def test_the_jobs_of_asyncio_have_the_same_names(name: str) -> None:
    def public(kind: type) -> set[str]:
        return {each for each in vars(kind) if not each.startswith("_")}

    assert public(getattr(package, name)) == public(getattr(aio, name))


def test_names_and_signatures_are_those_of_the_list() -> None:
    """`tests/compat/public_names.py` says how the list is changed on purpose."""
    assert public_names.public_names() == public_names.LIST.read_text()


def test_the_keys_of_a_job_are_attributes_of_the_type_that_they_have_in_json() -> None:
    def in_json(kind: Any) -> Any:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return dict[str, Any]
        if kind is JobState:
            return str
        return list[in_json(get_args(kind)[0])] if get_origin(kind) is tuple else kind

    fields = {name: in_json(field.annotation) for name, field in JobDetail.model_fields.items()}
    told = get_type_hints(JobInfo, localns={"OnUnreachable": OnUnreachable})
    assert told == fields
    assert list(told)[:12] == list(fields)[:12]
