"""The errors of the older package: its names for those that are raised here in the same cases."""

from ray_multicluster_scheduler.errors import ClusterError as ClusterConnectionError
from ray_multicluster_scheduler.errors import ConfigError as ConfigurationError
from ray_multicluster_scheduler.errors import InvalidRequest as TaskSubmissionError
from ray_multicluster_scheduler.errors import NoClusterAvailable as NoHealthyClusterError
from ray_multicluster_scheduler.errors import NoClusterAvailable as PolicyEvaluationError
from ray_multicluster_scheduler.errors import SchedulerError

__all__ = [
    "ClusterConnectionError",
    "ConfigurationError",
    "NoHealthyClusterError",
    "PolicyEvaluationError",
    "SchedulerError",
    "TaskSubmissionError",
]
