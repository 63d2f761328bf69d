"""Two real clusters, of which this process has joined one natively as a job would: its home."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_multicluster_scheduler import initialize_scheduler_environment
from ray_multicluster_scheduler.local import HeadSpec, Sandbox

HOME, OTHER = "home", "other"


@contextmanager
def joined() -> Iterator[Sandbox]:
    """Start both clusters, join one of them and set up our scheduler; undo all of it in the end."""
    with tempfile.TemporaryDirectory() as folder:
        heads = [HeadSpec(name=name, cpus=4) for name in (HOME, OTHER)]
        with Sandbox(Path(folder) / "sandbox", heads) as sandbox:
            os.environ |= {
                "RAY_AUTH_MODE": "disabled",
                # Ray on Linux gives up a loopback address unless it is told to behave as on macOS.
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_MULTICLUSTER_HOME": str(Path(folder) / "state"),
                "RAY_MULTICLUSTER_CLUSTER": HOME,
                "RAY_MULTICLUSTER_SUBMISSION_ID": "benchmark",
            }
            import ray  # noqa: PLC0415 - reads these variables when it is imported

            ray.init(sandbox.heads[HOME].gcs_address, logging_level=logging.ERROR, log_to_driver=False)
            scheduler = initialize_scheduler_environment(sandbox.config_path)
            try:
                yield sandbox
            finally:
                scheduler.stop()
                ray.shutdown()
