"""A function over many items, on all clusters: the results come in order, as they are ready."""

import random

from ray_multicluster_scheduler import map_over_clusters

POINTS = 100_000


def inside(seed: int) -> int:
    """Throw points into a square, and count those in the quarter of a circle."""
    draw = random.Random(seed)
    return sum(draw.random() ** 2 + draw.random() ** 2 < 1 for _ in range(POINTS))


throws = range(200)
hits = sum(map_over_clusters(inside, throws))
print(f"pi is about {4 * hits / (POINTS * len(throws)):.3f}")
