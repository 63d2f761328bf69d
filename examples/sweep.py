"""A sweep as an array of jobs, over all clusters. This file is also the program that they run."""

import sys
from pathlib import Path

from ray_multicluster_scheduler import set_result, submit_jobs

HERE = Path(__file__).parent
RATES = [0.001, 0.01, 0.1, 0.4, 0.9, 1.1]


def train(rate: float) -> float:
    """Look for the lowest point of (x - 3)² in twenty steps, and return how far away that ended."""
    x = 0.0
    for _ in range(20):
        x -= rate * 2 * (x - 3)
    return abs(x - 3)


def sweep() -> None:
    """Submit a job for each rate, show them while they run, and tell the best."""
    jobs = submit_jobs(
        {
            "entrypoint": f"python {Path(__file__).name} {rate}",
            "runtime_env": {"working_dir": str(HERE), "excludes": ["fund"]},
            "job_id": f"rate {rate}",
            "group": "sweep",
            "max_retries": 1,
        }
        for rate in RATES
    )
    for job in jobs.wait().as_completed():
        print(job.summary())
    losses = {rate: job.result() for rate, job in zip(RATES, jobs, strict=True)}
    best = min(losses, key=lambda rate: losses[rate])
    print(f"the best rate is {best}, with a loss of {losses[best]:.3g}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        set_result(train(float(sys.argv[1])))
    else:
        sweep()
