"""Job arrays: indices such as `0-199` make one group of many jobs."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ray_multicluster_scheduler.environment.env_vars import ARRAY_INDEX_VAR, with_env_vars
from ray_multicluster_scheduler.errors import InvalidRequest

if TYPE_CHECKING:
    from ray_multicluster_scheduler.service.request import JobRequest

#: Replaced by the index, in the command and in the name.
PLACEHOLDER = "{i}"
#: More is a slip of the finger: a head starts about one job per second.
MOST_JOBS = 10_000
#: Longer digit strings are not accepted as numbers.
_RANGE = re.compile(r"(\d{1,15})(?:-(\d{1,15})(?::(\d{1,15}))?)?")


def parse_array(text: str) -> list[int]:
    """Return the indices of `0-9,20` or `0-100:10` (every tenth), each once, as they are written."""
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidRequest(f"an array wants indices such as 0-199, 0-9,20 or 0-100:10, not {text!r}")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step < 1:
            raise InvalidRequest(f"array: {part.strip()!r} holds no index; write the smaller number first")
        indices = range(first, last + 1, step)
        if len(indices) > MOST_JOBS:
            raise InvalidRequest(f"array: {text!r} would be {len(indices)} jobs; {MOST_JOBS} are the most")
        found.update(dict.fromkeys(indices))
    if len(found) > MOST_JOBS:
        raise InvalidRequest(f"array: {text!r} would be {len(found)} jobs; {MOST_JOBS} are the most")
    return list(found)


def array_of(request: JobRequest, indices: Sequence[int]) -> list[JobRequest]:
    """Return one request per index; they share a group, and their ids are the group's and the index.

    The program finds the index in its environment, and in the command where that holds `{i}`.
    """
    group = request.submission_id or f"array_{uuid.uuid4().hex[:12]}"
    return [
        request.replaced(
            entrypoint=request.entrypoint.replace(PLACEHOLDER, str(index)),
            job_id=request.job_id and request.job_id.replace(PLACEHOLDER, str(index)),
            submission_id=f"{group}-{index}",
            group=group,
            runtime_env=with_env_vars(request.runtime_env, {ARRAY_INDEX_VAR: str(index)}),
        )
        for index in indices
    ]
