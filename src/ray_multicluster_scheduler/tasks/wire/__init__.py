"""What runs on clusters: the bridge at home, the hub on the other cluster, and what passes between them.

These modules are sent by value, because our package need not be installed on a cluster. So they import only
the standard library, Ray and each other.
"""
