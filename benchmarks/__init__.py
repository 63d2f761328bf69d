"""Benchmarks: each is a ratio between two sides that were measured in turns, in one run."""
