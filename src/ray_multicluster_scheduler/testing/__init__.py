"""For tests, ours and our users': fakes of Ray clusters that break on demand, and the executors' contract."""

from ray_multicluster_scheduler.testing.executor_contract import EXECUTOR_CHECKS, ExecutorScene
from ray_multicluster_scheduler.testing.fake_cluster import ScriptedRunner, ShellRunner
from ray_multicluster_scheduler.testing.fake_ray import FakeRay

__all__ = ["EXECUTOR_CHECKS", "ExecutorScene", "FakeRay", "ScriptedRunner", "ShellRunner"]
