"""Preprocessing pipelines: one list of operators, run by Ray Data on a cluster or by pandas on one machine.

Importing this package imports neither Ray nor pandas: those come with the extra `[pipeline]`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import ray_multicluster_scheduler
from ray_multicluster_scheduler.config.installed import how_to_install
from ray_multicluster_scheduler.errors import InvalidRequest

LIBRARIES = ("matplotlib", "pandas", "pyarrow", "sklearn")
#: What code on a cluster imports to run a pipeline; nothing needs to be installed there for it.
PACKAGES = tuple(str(Path(file).parent) for file in (__file__, ray_multicluster_scheduler.__file__))

#: The prefix of the log line with the report of a pipeline that ran as a job.
REPORT_LINE = "raymc pipeline report: "


def check_extra() -> None:
    """Raise if libraries of the extra are missing; the error says how to install them."""
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise InvalidRequest(
            f"pipelines need {', '.join(missing)}; install the extra: {how_to_install('pipeline')}"
        )
