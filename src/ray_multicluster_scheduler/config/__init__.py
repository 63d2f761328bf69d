"""clusters.yaml: where it is found, what it may say, and the checked records that come out of it."""

from ray_multicluster_scheduler.config.find import find_config, home_dir
from ray_multicluster_scheduler.config.load import Config, load_config, parse_config
from ray_multicluster_scheduler.config.schema import ClusterEntry, Settings

__all__ = ["ClusterEntry", "Config", "Settings", "find_config", "home_dir", "load_config", "parse_config"]
