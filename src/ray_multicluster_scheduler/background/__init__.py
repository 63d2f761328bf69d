"""The scheduler in a process of its own: one for each store, there while there is work."""
