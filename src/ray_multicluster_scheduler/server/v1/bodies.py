"""What requests bring and answers carry, besides the views themselves."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, RootModel
from pydantic_core import CoreSchema

from ray_multicluster_scheduler.model.cluster import TRIAL_S
from ray_multicluster_scheduler.model.job import JobEvent
from ray_multicluster_scheduler.model.states import JobState
from ray_multicluster_scheduler.service.caller import Caller
from ray_multicluster_scheduler.service.request import JobRequest
from ray_multicluster_scheduler.service.views import (
    AttemptView,
    ClusterReport,
    ClusterView,
    JobView,
    SessionView,
    View,
    WaitView,
)

#: Jobs of one batch, and ids of one question.
MOST_JOBS = 10_000
MOST_IDS = 100_000

Ids = Annotated[list[str], Field(max_length=MOST_IDS, description="Submission ids.")]


class Body(BaseModel):
    """A body; a field that it does not have is refused."""

    model_config = ConfigDict(extra="forbid")


class JobBody(RootModel[dict[str, Any]]):
    """A job as it is asked for. `JobRequest` checks it, with the words that all doors use."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Show the fields of a request; whose job it is need not be said."""
        schema = JobRequest.model_json_schema()
        required = [name for name in schema["required"] if name != "user"]
        return {**schema, "title": "JobRequest", "required": required}

    def request(self, caller: Caller) -> JobRequest:
        """Return the request in the name of the caller; the service says who may name others."""
        user = self.root.get("user")
        return JobRequest(**{**self.root, "user": caller.user if user is None else user})


class Batch(Body):
    """Jobs that are accepted together, or not at all."""

    jobs: Annotated[list[JobBody], Field(max_length=MOST_JOBS)]


class Array(Body):
    """One job for each index; `{i}` in its entrypoint and its job_id is the index."""

    job: JobBody
    indices: Annotated[str, Field(description="Such as 0-9, 0-9,20 or 0-100:10.", max_length=10_000)]


class SubmissionIds(Body):
    """Jobs by their ids."""

    submission_ids: Ids


class Words(Body):
    """Jobs by ids or names."""

    words: Ids


class Stop(Body):
    """Which jobs are to be stopped, and why."""

    submission_ids: Ids
    reason: str = "stopped by the user"


class Changes(Body):
    """Which jobs are waited for, how long, and how often a sign of life comes."""

    submission_ids: Ids
    timeout_s: Annotated[float | None, Field(ge=0, le=1e10, allow_inf_nan=False)] = None
    tick_s: Annotated[float, Field(ge=0.05, le=3600, allow_inf_nan=False)] = 15.0


class Prune(Body):
    """Which history is to be removed; without a word, what the settings say."""

    older_than_s: Annotated[float | None, Field(ge=0, le=1e10, allow_inf_nan=False)] = None
    keep: Annotated[int | None, Field(ge=0, le=2**53)] = None
    dry_run: bool = False


class Drain(Body):
    """Why a cluster is taken out of service, or back."""

    reason: str = ""


class RunDoctor(Body):
    """Where a short job is to run, and how long it may take."""

    #: Null: on all clusters.
    clusters: list[str] | None = None
    timeout_s: Annotated[float, Field(ge=1, le=600, allow_inf_nan=False)] = TRIAL_S


class JobList(View):
    """Jobs, in the order that was asked for."""

    jobs: tuple[JobView, ...]


class Deleted(View):
    """The jobs that are forgotten now."""

    deleted: tuple[str, ...]


class JobsById(View):
    """The known ones among the jobs that were asked for."""

    jobs: dict[str, JobView]


class EventList(View):
    """What has happened, in order."""

    events: tuple[JobEvent, ...]


class AttemptList(View):
    """The last placements of a job, oldest first."""

    attempts: tuple[AttemptView, ...]


class SessionList(View):
    """All open sessions that the caller may see."""

    sessions: tuple[SessionView, ...]


class ClusterList(View):
    """Every configured cluster."""

    clusters: tuple[ClusterView, ...]


class Reports(View):
    """What was found out about clusters."""

    clusters: tuple[ClusterReport, ...]


class WaitList(View):
    """Every reason with waiting jobs."""

    waits: tuple[WaitView, ...]


class Counts(View):
    """How many jobs are in each state."""

    counts: dict[JobState, int]


class Log(View):
    """The log of an attempt; null: it cannot be had now."""

    logs: str | None


class News(View):
    """The newest event there is."""

    newest: int


class Drained(View):
    """How a cluster is marked now."""

    cluster: str
    drained: bool
