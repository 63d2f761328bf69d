"""Frozen records and the job state table. Nothing here does I/O or knows the time."""
