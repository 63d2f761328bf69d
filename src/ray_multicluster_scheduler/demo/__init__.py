"""`make demo`: what the scheduler does with jobs, tasks and actors, on two real Ray clusters."""
