"""Fakes for tests, ours and our users': Ray clusters that start in a millisecond and break on demand."""

from ray_multicluster_scheduler.testing.fake_ray import FakeRay
from ray_multicluster_scheduler.testing.runners import ScriptedRunner, ShellRunner

__all__ = ["FakeRay", "ScriptedRunner", "ShellRunner"]
