"""A far actor and far tasks are under way when the test takes something away: what does this program see?"""

import sys
import time
from typing import Any

import ray
from common import CONFIG, FOLDER, answer, here, note, wait_for

from ray_multicluster_scheduler import (
    explain_task,
    initialize_scheduler_environment,
    submit_actor,
    submit_task,
)

OTHER = sys.argv[3]
PATIENCE_S = 150


class Far:
    def where(self) -> str:
        return here()

    def wait(self, path: str) -> str:
        wait_for(path)
        return here()


def stubborn(other: str) -> str:
    """Ends at once anywhere but on the other cluster."""
    while here() == other:
        time.sleep(0.1)
    return here()


def seen(ref: Any) -> Any:
    """The value of a ref, or all types that its error can be caught by."""
    try:
        return ray.get(ref, timeout=PATIENCE_S)
    except Exception as error:  # noqa: BLE001 - which one it is, is the question
        print(error, flush=True)
        return [kind.__name__ for kind in type(error).__mro__]


scheduler = initialize_scheduler_environment(CONFIG)
_, far = submit_actor(Far, preferred_cluster="other")
assert ray.get(far.where.remote()) == OTHER
waiting = far.wait.remote(str(FOLDER / "go"))
task = {"resource_requirements": {"CPU": 0.1}, "preferred_cluster": "other"}
_, repeatable = submit_task(stubborn, args=(OTHER,), **task)
_, once = submit_task(stubborn, args=(OTHER,), max_retries=0, **task)
assert ray.wait([waiting, repeatable, once], timeout=3)[0] == []
note("ready")
wait_for(str(FOLDER / "taken"))
result = {
    "call": seen(waiting),
    "repeatable": seen(repeatable),
    "once": seen(once),
    "later": seen(far.where.remote()),
}
note("seen")
wait_for(str(FOLDER / "given-back"))
actor_id, again = submit_actor(Far, preferred_cluster="other")
result["again"] = seen(again.where.remote())
result["why"] = explain_task(actor_id)
scheduler.stop()
answer(result)
