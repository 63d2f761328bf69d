"""The local sandbox: real Ray heads on this machine, for trying things out and for tests."""

from ray_multicluster_scheduler.local.sandbox import Sandbox
from ray_multicluster_scheduler.local.spec import Head, HeadSpec, HeadState, Phase

__all__ = ["Head", "HeadSpec", "HeadState", "Phase", "Sandbox"]
