"""The optional libraries of pipelines, and the error if they are missing."""

from __future__ import annotations

from importlib.util import find_spec

from ray_multicluster_scheduler.config.installed import how_to_install
from ray_multicluster_scheduler.errors import InvalidRequest

LIBRARIES = ("matplotlib", "pandas", "pyarrow", "sklearn")


def check_extra() -> None:
    """Raise if libraries of the extra are missing; the error says how to install them."""
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise InvalidRequest(
            f"pipelines need {', '.join(missing)}; install the extra: {how_to_install('pipeline')}"
        )
