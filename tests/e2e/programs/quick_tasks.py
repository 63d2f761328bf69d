"""Quick tasks, one after the other: home is idle whenever the next one is submitted."""

import sys

import ray
from common import CONFIG, answer

from ray_multicluster_scheduler import explain_task, initialize_scheduler_environment, submit_task


def where() -> str:
    return str(ray.get_runtime_context().gcs_address)


scheduler = initialize_scheduler_environment(CONFIG)
away = []
for number in range(int(sys.argv[3])):
    task_id, ref = submit_task(where)
    place, home = ray.get(ref), where()
    if place != home:
        away.append([number, explain_task(task_id)])
scheduler.stop()
answer({"home": home, "away": away})
