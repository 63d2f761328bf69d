"""The life of one job: what was observed, whether it is tried again, how it is stopped, what is written."""
