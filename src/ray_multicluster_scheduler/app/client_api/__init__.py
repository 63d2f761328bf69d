"""Import paths that users already have: the functions here, and modules of the same names.

    from ray_multicluster_scheduler.app.client_api import submit_job              # the function
    from ray_multicluster_scheduler.app.client_api.submit_job import submit_job   # the same one

Importing a module for the first time sets its name here, so all of them are imported first, and the
functions of the same names come last.
"""

from types import ModuleType

from ray_multicluster_scheduler.app.client_api import submit_actor as _actors
from ray_multicluster_scheduler.app.client_api import submit_job as _jobs
from ray_multicluster_scheduler.app.client_api import submit_task as _tasks
from ray_multicluster_scheduler.app.client_api import unified_scheduler
from ray_multicluster_scheduler.app.client_api.submit_actor import (
    get_actor_result,
    get_actor_status,
    kill_actor,
    list_actors,
    submit_actor,
    submit_actor_async,
)
from ray_multicluster_scheduler.app.client_api.submit_job import (
    get_job_info,
    get_job_status,
    graceful_shutdown_on_keyboard_interrupt,
    stop_job,
    submit_job,
    wait_for_all_jobs,
)
from ray_multicluster_scheduler.app.client_api.submit_task import (
    cancel_task,
    get_task_result,
    get_task_status,
    submit_task,
)
from ray_multicluster_scheduler.app.client_api.unified_scheduler import (
    UnifiedScheduler,
    get_unified_scheduler,
    initialize_scheduler,
    initialize_scheduler_environment,
)

__all__ = [
    "UnifiedScheduler",
    "cancel_task",
    "get_actor_result",
    "get_actor_status",
    "get_job_info",
    "get_job_status",
    "get_task_result",
    "get_task_status",
    "get_unified_scheduler",
    "graceful_shutdown_on_keyboard_interrupt",
    "initialize_actor_scheduler",
    "initialize_job_scheduler",
    "initialize_scheduler",
    "initialize_scheduler_environment",
    "kill_actor",
    "list_actors",
    "stop_job",
    "submit_actor",
    "submit_actor_async",
    "submit_job",
    "submit_task",
    "unified_scheduler",
    "unified_submit_actor",
    "unified_submit_task",
    "wait_for_all_jobs",
]

initialize_job_scheduler = initialize_actor_scheduler = initialize_scheduler
unified_submit_actor, unified_submit_task = submit_actor, submit_task


def _also_like(module: ModuleType, function: object) -> None:
    """Let `import …app.client_api.submit_job as module` be used like the module that it names."""
    vars(function).update({name: getattr(module, name) for name in module.__all__})


_also_like(_jobs, submit_job)
_also_like(_tasks, submit_task)
_also_like(_actors, submit_actor)
