"""Run jobs, tasks and actors on many independent Ray clusters as if they were one.

The functions are imported when they are first used: a program on a cluster that needs one module of this
package needs only the libraries of that module.
"""

import importlib
import platform
import sys
from typing import TYPE_CHECKING, Any

from ray_multicluster_scheduler.version import VERSION

if sys.version_info < (3, 10):  # noqa: UP036 - the package travels with jobs, to clusters of any Python
    raise ImportError(
        f"ray_multicluster_scheduler {VERSION} needs Python 3.10 or newer, and this program runs on "
        f"{platform.python_version()}: use another environment on this cluster, or do not import it there"
    )

if TYPE_CHECKING:
    from ray_multicluster_scheduler.client.current import (
        get_unified_scheduler,
        initialize_scheduler_environment,
    )
    from ray_multicluster_scheduler.client.init_ray import init_ray
    from ray_multicluster_scheduler.client.job import Job, Jobs, job, jobs
    from ray_multicluster_scheduler.client.job_functions import (
        delete_job,
        drain,
        explain,
        get_job_info,
        get_job_logs,
        get_job_status,
        list_clusters,
        list_jobs,
        plan_job,
        retry_job,
        stop_job,
        submit_job,
        submit_jobs,
        tail_job_logs,
        undrain,
    )
    from ray_multicluster_scheduler.client.job_info import JobInfo
    from ray_multicluster_scheduler.client.map import (
        MultiClusterExecutor,
        map_over_clusters,
        put_everywhere,
    )
    from ray_multicluster_scheduler.client.result import set_result
    from ray_multicluster_scheduler.client.scope import graceful_shutdown_on_keyboard_interrupt
    from ray_multicluster_scheduler.client.tasks import (
        cancel_task,
        explain_task,
        get_actor_result,
        get_actor_status,
        get_task_result,
        get_task_status,
        kill_actor,
        list_actors,
        submit_actor,
        submit_actor_async,
        submit_actor_pool,
        submit_task,
    )
    from ray_multicluster_scheduler.client.waiting import wait_for_all_jobs
    from ray_multicluster_scheduler.tasks.actor_pool import ActorPool

__version__ = VERSION

__all__ = [
    "ActorPool",
    "Job",
    "JobInfo",
    "Jobs",
    "MultiClusterExecutor",
    "cancel_task",
    "delete_job",
    "drain",
    "explain",
    "explain_task",
    "get_actor_result",
    "get_actor_status",
    "get_job_info",
    "get_job_logs",
    "get_job_status",
    "get_task_result",
    "get_task_status",
    "get_unified_scheduler",
    "graceful_shutdown_on_keyboard_interrupt",
    "init_ray",
    "initialize_scheduler_environment",
    "job",
    "jobs",
    "kill_actor",
    "list_actors",
    "list_clusters",
    "list_jobs",
    "map_over_clusters",
    "plan_job",
    "put_everywhere",
    "retry_job",
    "set_result",
    "stop_job",
    "submit_actor",
    "submit_actor_async",
    "submit_actor_pool",
    "submit_job",
    "submit_jobs",
    "submit_task",
    "tail_job_logs",
    "undrain",
    "wait_for_all_jobs",
]

#: Where the functions live that are not in `client.job_functions`.
_ELSEWHERE = {
    "ActorPool": "tasks.actor_pool",
    "Job": "client.job",
    "JobInfo": "client.job_info",
    "Jobs": "client.job",
    "MultiClusterExecutor": "client.map",
    "cancel_task": "client.tasks",
    "explain_task": "client.tasks",
    "get_actor_result": "client.tasks",
    "get_actor_status": "client.tasks",
    "get_task_result": "client.tasks",
    "get_task_status": "client.tasks",
    "get_unified_scheduler": "client.current",
    "graceful_shutdown_on_keyboard_interrupt": "client.scope",
    "init_ray": "client.init_ray",
    "initialize_scheduler_environment": "client.current",
    "job": "client.job",
    "jobs": "client.job",
    "kill_actor": "client.tasks",
    "list_actors": "client.tasks",
    "set_result": "client.result",
    "map_over_clusters": "client.map",
    "put_everywhere": "client.map",
    "submit_actor": "client.tasks",
    "submit_actor_async": "client.tasks",
    "submit_actor_pool": "client.tasks",
    "submit_task": "client.tasks",
    "tail_job_logs": "client.job_functions",
    "wait_for_all_jobs": "client.waiting",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "init_ray":
        installed = importlib.import_module(f"{__name__}.config.installed")
        installed.check_ray("programs that call init_ray", extra="tasks")
    home = importlib.import_module(f"{__name__}.{_ELSEWHERE.get(name, 'client.job_functions')}")
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
