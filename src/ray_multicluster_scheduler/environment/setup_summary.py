"""A short summary of what Ray has to install before a program starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray_multicluster_scheduler.model.states import JobState

#: Part of the reason of a job whose environment is being set up. Lists of jobs search for these words.
SETTING_UP = "setting up its environment"


def is_setting_up(state: JobState, reason: str) -> bool:
    """Tell whether a job is on its cluster and waits for its environment."""
    return state is JobState.SUBMITTED and SETTING_UP in reason


def setup_summary(runtime_env: Mapping[str, Any]) -> str:
    """Summarise the slow parts of an environment (`pip: 2 packages`); empty if there are none."""
    counts = {name: _packages(runtime_env.get(name)) for name in ("pip", "uv")}
    if isinstance(conda := runtime_env.get("conda"), Mapping):  # a name needs no installation
        items = conda.get("dependencies") or ()
        counts["conda"] = sum(_packages(item["pip"]) if isinstance(item, Mapping) else 1 for item in items)
    parts = [f"{name}: {count} package{'' if count == 1 else 's'}" for name, count in counts.items() if count]
    if "image_uri" in runtime_env or "container" in runtime_env:
        parts.append("a container image")
    return ", ".join(parts)


def _packages(value: Any) -> int:
    return len(value.get("packages", ()) if isinstance(value, Mapping) else value or ())
