"""The names of the user guide, for use in a clone: `src.bench.cli` and `src.engines.ray.runtime`.

They call the installed package and are no part of it. This file makes the clone's `src` the one that Python
finds, even where another folder of the path has a package of that name.
"""

from importlib.util import find_spec


def advice(problem: ImportError) -> str:
    """Say what to do when Python does not find this clone's package; raise what has another cause."""
    name = "ray_multicluster_scheduler"
    if not (problem.name or "").startswith(name):
        raise problem
    if (found := find_spec(name)) is None:
        return f"{name} is not installed in this Python: run `pip install -e '.[pipeline]'` in the clone"
    return (
        f"{found.origin} is another package named {name}, and Python finds it first: "
        "take its folder out of PYTHONPATH, or uninstall it"
    )
