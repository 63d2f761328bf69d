"""A job as the user requested it (`JobSpec`), its progress (`Job`, `Attempt`, `JobEvent`), and its past."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from ray_multicluster_scheduler.model.execution import DEFAULT_EXECUTOR, not_here
from ray_multicluster_scheduler.model.job_options import JobOptions
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.model.states import FINAL, JobState

#: Ray accepts other ids, but a job with such an id cannot be deleted from a cluster.
SUBMISSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

#: What a job claims that asks for nothing.
DEFAULT_CLAIM: Resources = MappingProxyType({"CPU": 1.0})

#: The `job_id` that is generated for a job without one.
_GENERATED_NAME = re.compile(r"job_[0-9a-f]{32}")


def own_name(name: str | None) -> str | None:
    """Return the name that a user gave; None for a generated name, which is never shown."""
    return None if not name or _GENERATED_NAME.fullmatch(name) else name


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(JobOptions):
    """The request of the user. It never changes after the job was accepted."""

    entrypoint: str
    user: str
    #: The user's own name for the job (`job_id` in the API); free text. Several jobs may have the same one.
    name: str | None = None
    #: Normalised; local directories are already replaced by `gcs://` packages that we hold.
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    #: Admission claim on the whole job, `memory` in bytes; not passed on to Ray.
    requirements: Resources = field(default_factory=dict)
    entrypoint_resources: Mapping[str, float] = field(default_factory=dict)
    entrypoint_label_selector: Mapping[str, str] = field(default_factory=dict)
    #: Of the program that a session belongs to: its address, and its versions of Ray and Python if known.
    client_address: str | None = None
    client_ray: str | None = None
    client_python: str | None = None

    @property
    def own_name(self) -> str | None:
        """Return the name that the user gave; None for a generated name, which is never shown."""
        return own_name(self.name)

    @property
    def claim(self) -> dict[str, float]:
        """The resources that the job holds on its cluster while it runs.

        One CPU if nothing was requested; nothing if no CPU was requested explicitly (`CPU: 0`).
        """
        entry: dict[str, float] = {
            **{name: float(amount) for name, amount in self.entrypoint_resources.items()},
            **({"CPU": self.entrypoint_num_cpus} if self.entrypoint_num_cpus else {}),
            **({"GPU": self.entrypoint_num_gpus} if self.entrypoint_num_gpus else {}),
            **({"memory": float(self.entrypoint_memory)} if self.entrypoint_memory else {}),
        }
        names = {**self.requirements, **entry}
        amounts = {name: max(self.requirements.get(name, 0.0), entry.get(name, 0.0)) for name in names}
        claim = {name: amount for name, amount in amounts.items() if amount}
        return claim if claim or "CPU" in self.requirements else dict(DEFAULT_CLAIM)


class Target(str, Enum):
    """The state that a job should end in, stored beside its present state."""

    FINISHED = "FINISHED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row of the job table: a spec and its progress."""

    #: Order of acceptance.
    seq: int
    submission_id: str
    spec: JobSpec
    state: JobState = JobState.QUEUED
    target: Target = Target.FINISHED
    #: 0 before the first placement; grows with each one. The program gets it as a variable.
    attempt: int = 0
    cluster: str | None = None
    #: Ray's submission id of the current attempt: chosen before the first send, so that a resend cannot
    #: start a second run.
    remote_id: str | None = None
    #: The cluster's Ray session when the attempt was placed.
    session_name: str | None = None
    accepted_at: float
    placed_at: float | None = None
    #: When the current attempt was first observed on its cluster; None: it may never have arrived.
    seen_at: float | None = None
    #: When its program began on the cluster, as far as that is known, and when it ended.
    started_at: float | None = None
    ended_at: float | None = None
    #: Its cluster has not reported the end: `ended_at` is when it was noticed here.
    end_unreported: bool = False
    #: When the current state was entered: of RUNNING and of an end, by the times above.
    changed_at: float
    #: A retry waits until then.
    not_before: float = 0.0
    #: The reason for the present state, in one sentence for people.
    reason: str = ""
    #: Why a stop was requested.
    stop_reason: str | None = None
    error_type: str | None = None
    exit_code: int | None = None
    infra_failures: int = 0
    user_failures: int = 0
    #: Clusters that lost this job or failed to set up its environment; used again only if nothing else fits.
    avoid: tuple[str, ...] = ()
    #: The job under which a list shows this one; None: it is listed itself. Changes if that one is removed.
    head: str | None = None

    @property
    def final(self) -> bool:
        """Tell whether the job has ended; a final state never changes."""
        return self.state in FINAL

    @property
    def stopped_because(self) -> str:
        """Return why it was stopped. In every state, the final reason of a stopped job begins with this."""
        return self.stop_reason or "stopped by the user"


def left_alone(job: Job) -> str:
    """Say what becomes of a job whose executor this version does not have."""
    where = f"; its attempt on {job.cluster!r} is left alone" if job.cluster and not job.final else ""
    return f"{not_here(job.spec.executor)}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One placement of a job on a cluster, kept as history."""

    submission_id: str
    number: int
    cluster: str
    remote_id: str
    #: The executor that ran it (`executors/`).
    executor: str = DEFAULT_EXECUTOR
    session_name: str | None
    #: The entrypoint and the environment exactly as sent; empty until they were composed.
    entrypoint: str = ""
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    #: The placement decision: parts of each score, refusals (model/decision.py as JSON).
    decision: Mapping[str, Any] = field(default_factory=dict)
    placed_at: float
    started_at: float | None = None
    ended_at: float | None = None
    #: Its cluster has not reported the end: `ended_at` is when it was noticed here.
    end_unreported: bool = False
    #: How it ended; None while it is live. `SUPERSEDED`: it reappeared after it was replaced.
    outcome: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """One change of one job, with its reason, written in the same transaction as the change."""

    id: int
    submission_id: str
    at: float
    old: JobState | None
    new: JobState
    attempt: int
    cluster: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A requested change of state: applied only if the job is still in `expected` with this `attempt`.

    `changes` are further fields of `Job` to set in the same transaction (cluster, started_at, ...).
    `attempt_changes` are fields of the current `Attempt` (entrypoint, runtime_env, outcome, ended_at, ...).
    A change to PLACED inserts the row of the attempt; a change out of the LIVE states closes it.
    `new == expected` is a note: the fields and an event are written, and the state stays the same.
    """

    submission_id: str
    expected: JobState
    attempt: int
    new: JobState
    reason: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    attempt_changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to run the engine. `epoch` grows with each new holder and fences out the former one."""

    holder: str
    epoch: int
    expires_at: float


def remote_id_for(submission_id: str, attempt: int) -> str:
    """Return the id of an attempt on its cluster; later attempts append their number to the user's id."""
    return submission_id if attempt <= 1 else f"{submission_id}--r{attempt}"


# A past change of state with its times, from which metrics and traces are computed.


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMove:
    """One job changed its state. Notes, which leave the state unchanged, do not count."""

    submission_id: str
    at: float
    #: None if the job was just accepted.
    old: JobState | None
    new: JobState
    attempt: int
    cluster: str | None
    accepted_at: float
    #: When the job entered its old state; None for a new job.
    since: float | None
    #: The outcome of the attempt that ended with this change; None if no attempt ended.
    outcome: str | None
    #: When the attempt began and ended on its cluster, which may be long before that was noticed (`at`).
    started_at: float | None = None
    ended_at: float | None = None


# When an attempt was on its cluster: a bar of a timeline.


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpan:
    """One attempt, with what a timeline shows of its job."""

    submission_id: str
    name: str | None
    user: str
    group: str | None
    cluster: str
    attempt: int
    placed_at: float
    started_at: float | None
    ended_at: float | None
    #: `ended_at` is when the end was noticed here: the cluster has not reported it.
    end_unreported: bool
    #: How the attempt ended; None while it lives.
    outcome: str | None
    #: The state of the job now.
    state: JobState
    claim: Resources


# Notes in a stored log about missing parts: only its end is kept, and reading it may fail midway.


_CUT = re.compile(r"\A\[the first (\d+) bytes of this log were not kept\]\n")
#: The last line of a log that could not be read completely.
INCOMPLETE = "\n[the rest of this log could not be read from the cluster]\n"


def cut_note(missing: int) -> str:
    """Return the note at the start of a log whose first bytes are missing; empty if none are."""
    return f"[the first {missing} bytes of this log were not kept]\n" if missing else ""


def missing_bytes(kept: str) -> int:
    """Return the number of bytes that are missing at the start of a log."""
    note = _CUT.match(kept)
    return int(note[1]) if note else 0


def without_note(kept: str) -> str:
    """Return a log without the note about missing bytes."""
    return _CUT.sub("", kept, count=1)
