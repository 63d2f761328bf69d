"""Colours for charts, which know nothing of style sheets; they can be told apart on light and on dark."""

from __future__ import annotations

from ray_multicluster_scheduler.model.states import JobState

#: Texts and lines.
QUIET = "#7b8494"
STATES = {
    JobState.QUEUED: "#8a94a6",
    JobState.PLACED: "#6f9bff",
    JobState.SUBMITTED: "#4c82f7",
    JobState.RUNNING: "#2f6bf0",
    JobState.UNREACHABLE: "#d08a0c",
    JobState.LOST: "#9d4edd",
    JobState.SUCCEEDED: "#22a35a",
    JobState.FAILED: "#dc3b3b",
    JobState.STOPPED: "#5f6a7d",
}
