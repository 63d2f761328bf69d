"""`make demo`: everything the scheduler does with jobs, on two real Ray clusters on this machine."""
