"""`python -m raymc_pipeline`: the same as `raymc pipeline`."""

import sys

from ray_multicluster_scheduler.cli.main import main

if __name__ == "__main__":
    sys.argv[1:1] = ["pipeline"]
    main()
