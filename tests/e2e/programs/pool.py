"""Many items over a pool on all clusters; with one more word, half of them wait until a cluster is gone."""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import ray
from common import CONFIG, FOLDER, answer, note, wait_for

from ray_multicluster_scheduler import initialize_scheduler_environment, list_actors, submit_actor_pool
from ray_multicluster_scheduler.errors import ItemFailed

ITEMS, LOSES = int(sys.argv[3]), len(sys.argv) > 4


class Model:
    """It uses nothing of `common`, which a program that is no job does not take along."""

    def __init__(self, folder: str, factor: int) -> None:
        self.folder = folder
        self.factor = factor
        self.loaded = ""

    def load(self, path: str) -> str:
        self.loaded = path
        return self.here()

    def here(self) -> str:
        return str(ray.get_runtime_context().gcs_address)

    def predict(self, item: int) -> tuple[int, str, str]:
        # Small writes that append are whole, on both clusters: they share this machine.
        with Path(self.folder, "begun").open("a") as begun:
            begun.write(f"{item}\n")
        if item == -1:
            raise ValueError("no such item")
        time.sleep(0.02)
        return self.factor * item, self.here(), self.loaded


def failure(pool: Any) -> list[Any]:
    try:
        pool.submit("predict", -1).result()
    except ValueError as error:
        cause = error.__cause__
        assert isinstance(cause, ItemFailed)
        return [cause.item, cause.cluster, "no such item" in cause.traceback]
    return []


scheduler = initialize_scheduler_environment(CONFIG)
with submit_actor_pool(
    Model, args=(str(FOLDER), 2), resource_requirements={"CPU": 1}, name="model", size=3 if LOSES else "fit"
) as pool:
    # Only actors that are ready answer; the others are called before they get an item.
    while len(set(first := pool.broadcast(Model.load, "weights"))) < 2:
        time.sleep(1)
    values, places, loaded = [], Counter[str](), set()
    before = pool.clusters()
    for value, place, weights in pool.map(Model.predict, range(ITEMS), ordered=not LOSES):
        values.append(value)
        places[place] += 1
        loaded.add(weights)
        if LOSES and len(values) == ITEMS // 2:
            note("half")
            wait_for(str(FOLDER / "taken"))
    failed, repeated, text = failure(pool), pool.repeated, repr(pool)
note("over")
begun = Counter((FOLDER / "begun").read_text().split())
scheduler_knows = list_actors()
scheduler.stop()
answer(
    {
        "right": values == [2 * each for each in range(ITEMS)] if not LOSES else sorted(values),
        "places": places,
        "before": before,
        "loaded": sorted(loaded),
        "first": first,
        "failure": failed,
        "repeated": repeated,
        "twice": sorted(int(item) for item, times in begun.items() if times > 1),
        "all_begun": len(begun) - 1,
        "repr": text,
        "left": scheduler_knows,
    }
)
