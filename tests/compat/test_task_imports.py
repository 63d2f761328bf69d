"""Import paths, names and signatures for tasks and actors; and importing them does not import Ray."""

import inspect
import subprocess
import sys

import pytest

import ray_multicluster_scheduler
from ray_multicluster_scheduler import aio
from ray_multicluster_scheduler.app.client_api.submit_actor import submit_actor
from ray_multicluster_scheduler.app.client_api.submit_task import submit_task

NAMES = [
    "cancel_task",
    "explain_task",
    "get_actor_result",
    "get_actor_status",
    "get_task_result",
    "get_task_status",
    "kill_actor",
    "list_actors",
    "submit_actor",
    "submit_actor_async",
    "submit_task",
]


def positional(function: object) -> list[str]:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


def test_the_arguments_are_those_of_the_users_programs_in_their_order() -> None:
    common = ["args", "kwargs", "resource_requirements", "tags", "name", "preferred_cluster"]
    assert positional(submit_task) == ["func", *common]
    assert positional(submit_actor) == ["actor_class", *common, "timeout"]


@pytest.mark.parametrize("name", NAMES)
def test_every_function_is_public_and_has_an_async_twin(name: str) -> None:
    assert name in ray_multicluster_scheduler.__all__
    assert callable(getattr(ray_multicluster_scheduler, name))
    assert inspect.iscoroutinefunction(getattr(aio, name))


@pytest.mark.parametrize(
    "program",
    [
        "from ray_multicluster_scheduler import submit_actor, submit_job, submit_task",
        "from ray_multicluster_scheduler.app.client_api import submit_actor, submit_task, unified_scheduler",
        "import ray_multicluster_scheduler.cli.commands.submit",
        "from ray_multicluster_scheduler import aio",
    ],
)
def test_importing_us_does_not_import_ray(program: str) -> None:
    check = f"{program}; import sys; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
