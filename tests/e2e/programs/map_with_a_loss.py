"""A map of 2,000 items; the test kills a head in the middle. `maps` tells which items were run, and where."""

import logging
import os
import sys
import time
from collections import Counter

from common import CONFIG, FOLDER, answer, note

from ray_multicluster_scheduler import initialize_scheduler_environment, map_over_clusters

logging.basicConfig(level=logging.INFO)
PREFERRED, ITEMS, ENOUGH = sys.argv[3], 2_000, 30
lines = str(FOLDER / "maps")


def slow_square(item):
    cluster = os.environ.get("RAY_MULTICLUSTER_CLUSTER", "?")
    with open(lines, "a") as file:  # noqa: PTH123 - one write, which is added at the end as a whole
        file.write(f"{item} {cluster}\n")
    time.sleep(0.06)
    return item**2, cluster


scheduler = initialize_scheduler_environment(CONFIG)
results, seen = [], Counter()
for result, cluster in map_over_clusters(slow_square, iter(range(ITEMS)), preferred_cluster=PREFERRED):
    results.append(result)
    seen[cluster] += 1
    if len(seen) == 2 and min(seen.values()) == ENOUGH == seen[cluster]:
        note("in-the-middle")
scheduler.stop()
answer(results == [item**2 for item in range(ITEMS)])
