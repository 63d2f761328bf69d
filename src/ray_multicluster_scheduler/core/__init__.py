"""The scheduler as a state machine: values in, values out; no I/O, no clock, no randomness, no logging."""
