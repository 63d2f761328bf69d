"""The body of a submit, checked as Ray checks it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_KEYS = {
    "entrypoint": str,
    "submission_id": str,
    "job_id": str,
    "runtime_env": dict,
    "metadata": dict,
    "entrypoint_num_cpus": (int, float),
    "entrypoint_num_gpus": (int, float),
    "entrypoint_memory": int,
    "entrypoint_resources": dict,
    "entrypoint_label_selector": dict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One submitted job."""

    submission_id: str
    entrypoint: str
    #: None when the caller left it out: Ray shows it so.
    runtime_env: Mapping[str, Any] | None
    metadata: Mapping[str, str] | None
    #: The resources that the driver itself holds while it runs.
    demand: Mapping[str, float]
    label_selector: Mapping[str, str] = field(default_factory=dict)


def parse_submission(body: Mapping[str, Any]) -> Submission:
    """Check a body. A `TypeError` has the message of Ray."""
    values = {key: value for key, value in body.items() if value is not None}
    for key, value in values.items():
        if key not in _KEYS:
            raise TypeError(f"JobSubmitRequest.__init__() got an unexpected keyword argument '{key}'")
        if not isinstance(value, _KEYS[key]):  # type: ignore[arg-type]
            raise TypeError(f"{key} must be a {_KEYS[key]}, got {type(value)}")
    if "entrypoint" not in values:
        raise TypeError("JobSubmitRequest.__init__() missing 1 required positional argument: 'entrypoint'")
    for key, value in values.get("metadata", {}).items():
        if not isinstance(value, str):
            raise TypeError(f"metadata values must be strings, got {type(value)} for {key}")
    demand = {
        "CPU": values.get("entrypoint_num_cpus", 0),
        "GPU": values.get("entrypoint_num_gpus", 0),
        "memory": values.get("entrypoint_memory", 0),
        **values.get("entrypoint_resources", {}),
    }
    return Submission(
        submission_id=values.get("submission_id")
        or values.get("job_id")
        or f"raysubmit_{secrets.token_hex(8)}",
        entrypoint=values["entrypoint"],
        runtime_env=values.get("runtime_env"),
        metadata=values.get("metadata"),
        demand={name: float(amount) for name, amount in demand.items() if amount > 0},
        label_selector=values.get("entrypoint_label_selector", {}),
    )
