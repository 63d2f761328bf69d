"""Code that runs on clusters: the bridge at home, the hub on the other cluster, and their protocol.

These modules are pickled by value, because this package need not be installed on a cluster. So they import
only the standard library, Ray, each other and `ray_multicluster_scheduler.errors`, which is pickled by value
too (see `bridges.send_by_value`) and imports only the standard library.
"""
