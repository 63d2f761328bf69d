"""A look at the clusters themselves, by a process that need not schedule."""
