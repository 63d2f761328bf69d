"""Decisions as pure functions: values in, values out; no I/O, no clock, no randomness, no logging."""
