"""What is known of each cluster: probes, the watch that repeats them, and what is wrong with one."""
