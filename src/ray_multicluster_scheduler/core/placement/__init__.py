"""Which job goes to which cluster, and why not to another one."""
