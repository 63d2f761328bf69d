"""What a program sees of where it runs. It is found through the cluster's PYTHONPATH."""
import os
import sys


def look_around():
    import ray_multicluster_scheduler

    return {
        'cluster': os.environ['RAY_MULTICLUSTER_CLUSTER'],
        'sys.prefix': sys.prefix,
        'home_dir': os.environ['home_dir'],
        'PYTHONPATH': os.environ['PYTHONPATH'],
        'package': ray_multicluster_scheduler.__file__,
        'version': ray_multicluster_scheduler.__version__,
    }
