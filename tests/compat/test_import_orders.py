"""The functions and the modules of the same names, whichever a program imports first."""

import subprocess
import sys

import pytest
from tests.support.waiting import PATIENCE_S

API = "ray_multicluster_scheduler.app.client_api"
FUNCTIONS = f"""
from {API} import (
    UnifiedScheduler, get_job_info, get_job_status, get_unified_scheduler,
    graceful_shutdown_on_keyboard_interrupt, initialize_scheduler_environment, stop_job,
    submit_actor, submit_job, submit_task, wait_for_all_jobs,
)
import inspect
for name in ("submit_actor", "submit_job", "submit_task"):
    assert inspect.isfunction(globals()[name]), name
"""
FROM_MODULES = f"""
from {API}.submit_job import get_job_status as status, submit_job as by_module
from {API}.submit_task import submit_task
from {API}.submit_actor import submit_actor
from {API}.unified_scheduler import UnifiedScheduler, submit_actor, submit_job, submit_task
assert by_module is submit_job
"""
DOTTED = f"""
import {API}.submit_job
import {API}.submit_job as jobs
import {API}.submit_actor as actors
assert {API}.submit_job.submit_job is {API}.unified_scheduler.submit_job
assert jobs.get_job_status is {API}.get_job_status
assert actors.get_actor_status is {API}.get_actor_status
"""
BY_NAME = f"""
import importlib, types
module = importlib.import_module("{API}.submit_job")
assert isinstance(module, types.ModuleType)
assert module.submit_job is importlib.import_module("ray_multicluster_scheduler").submit_job
"""
STAR = f"from {API} import *\nassert callable(submit_job) and callable(get_task_result)\n"
PARTS = {"functions": FUNCTIONS, "modules": FROM_MODULES, "dotted": DOTTED, "by name": BY_NAME, "star": STAR}


@pytest.mark.parametrize("first", PARTS)
def test_every_way_to_import_works_whichever_comes_first(first: str) -> None:
    program = "\n".join(PARTS[name] for name in (first, *PARTS))
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=PATIENCE_S)
