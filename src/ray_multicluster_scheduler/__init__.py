"""Run jobs, tasks and actors on many independent Ray clusters as if they were one."""

__version__ = "0.1.0"
