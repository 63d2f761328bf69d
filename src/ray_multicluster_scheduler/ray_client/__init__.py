"""The `ray://` address of a server: Ray Client programs, each on the cluster that was chosen for it."""
