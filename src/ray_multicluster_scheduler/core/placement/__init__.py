"""Placement: which job goes to which cluster, and why the other clusters refuse it."""
