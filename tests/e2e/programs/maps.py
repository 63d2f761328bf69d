"""Maps over both clusters: results, what they share, and what an item raises."""

import os

import numpy as np
from common import CONFIG, answer, here

from ray_multicluster_scheduler import (
    MultiClusterExecutor,
    initialize_scheduler_environment,
    map_over_clusters,
    put_everywhere,
)

scheduler = initialize_scheduler_environment(CONFIG)
table = put_everywhere(np.arange(500_000))
made_by = os.getpid()


class Unpicklable:
    def __reduce__(self):
        raise TypeError("it cannot be pickled")


def looked_up(item):
    if item < 0:
        raise ValueError(f"{item} is negative")
    return Unpicklable() if item == 13 else (int(table.value[item]), os.getpid())


found = list(map_over_clusters(looked_up, [7, -1, Unpicklable(), 13, 499_999], on_error="return", chunk=5))
result = {"values": [each[0] for each in (found[0], found[4])], "away": found[0][1] != made_by}
result["errors"] = [f"{type(each).__name__}: {each}" for each in found[1:4]]
result["cause"] = {"cluster": found[1].__cause__.cluster, "traceback": found[1].__cause__.traceback}

with MultiClusterExecutor(max_workers=2) as pool:
    result["sum"] = sum(pool.map(pow, range(200), [2] * 200))

where = set()


def until_both():
    while len(where) < 2:
        yield 0


for place in map_over_clusters(lambda _: here(), until_both(), ordered=False, progress=False):
    where.add(place)
result["where"] = sorted(where)
scheduler.stop()
answer(result)
