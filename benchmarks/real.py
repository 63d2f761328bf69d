"""Two real Ray clusters on this machine, for the benchmarks that need Ray itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ray_multicluster_scheduler.config import load_config
from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.local import HeadSpec, Sandbox

NAMES = ("a", "b")
CPUS = 4


@contextmanager
def two_clusters() -> Iterator[tuple[Mapping[str, str], Path]]:
    """Start two heads; yield their dashboards by name and a clusters.yaml for both."""
    with tempfile.TemporaryDirectory() as folder:
        heads = [HeadSpec(name=name, cpus=CPUS) for name in NAMES]
        with Sandbox(Path(folder) / "sandbox", heads) as sandbox:
            config = load_config(sandbox.config_path)
            yield {spec.name: spec.dashboard for spec in config.clusters}, sandbox.config_path


@contextmanager
def scheduler_for(config_path: Path) -> Iterator[EmbeddedScheduler]:
    """Run our scheduler on these clusters, with a store of its own."""
    with tempfile.TemporaryDirectory() as folder:
        scheduler = EmbeddedScheduler(load_config(config_path), directory=Path(folder) / "state", environ={})
        scheduler.start()
        try:
            yield scheduler
        finally:
            scheduler.stop()
