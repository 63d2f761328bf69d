"""Probing the clusters directly, from a process that need not schedule."""
