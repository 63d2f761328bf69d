"""The health of clusters: probes, the watch that repeats them, and diagnosis of a broken cluster."""
