"""The Python API: plain functions over the scheduler of this process."""
