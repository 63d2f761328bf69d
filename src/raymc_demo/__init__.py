"""`make demo`: shows jobs, tasks and actors of the scheduler on two real Ray clusters."""
