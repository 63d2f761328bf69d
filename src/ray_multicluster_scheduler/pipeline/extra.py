"""The optional libraries of pipelines, and what to do where they are missing."""

from __future__ import annotations

from importlib.util import find_spec

from ray_multicluster_scheduler.errors import InvalidRequest

LIBRARIES = ("matplotlib", "pandas", "pyarrow", "sklearn")


def check_extra() -> None:
    """Refuse to go on without the libraries of the extra, and say how to get them."""
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise InvalidRequest(
            f"pipelines need {', '.join(missing)}; install the extra: "
            "pip install 'ray-multicluster-scheduler[pipeline]'"
        )
