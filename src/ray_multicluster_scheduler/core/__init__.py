"""What the scheduler decides about jobs: values in, values out; no I/O, no clock, no randomness, no log."""
