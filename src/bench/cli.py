"""`python -m src.bench.cli pipeline …` is `raymc pipeline …`."""

import sys

from src import advice

try:
    from ray_multicluster_scheduler.cli.main import script
except ImportError as problem:
    sys.exit(advice(problem))

if __name__ == "__main__":
    script()
