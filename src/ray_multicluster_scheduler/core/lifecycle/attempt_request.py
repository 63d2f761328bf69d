"""What is sent to a cluster for a job: a pure function of that cluster's configuration and the job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ray_multicluster_scheduler.environment.compose import compose
from ray_multicluster_scheduler.environment.env_vars import (
    ATTEMPT_VAR,
    CLUSTER_VAR,
    OLDER_CLUSTER_VAR,
    SUBMISSION_ID_VAR,
)
from ray_multicluster_scheduler.environment.paths import map_paths
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.job import Job, JobSpec, remote_id_for
from ray_multicluster_scheduler.model.remote import RemoteJob, RemoteSubmit

ORIGIN = "raymc.origin"
JOB = "raymc.job"
ATTEMPT = "raymc.attempt"
#: Tells a job from an earlier one of the same id that was deleted here, and not there.
SEQ = "raymc.seq"


def compose_submit(
    submission_id: str,
    spec: JobSpec,
    attempt: int,
    target: ClusterSpec,
    clusters: Sequence[ClusterSpec],
    *,
    origin: str,
    seq: int | None = None,
) -> RemoteSubmit:
    """Compose the request for one attempt on one cluster, or raise `InvalidRuntimeEnv`.

    Nothing of any other cluster gets in but its `home_dir`, from which paths are mapped.
    """
    identity = {
        CLUSTER_VAR: target.name,
        OLDER_CLUSTER_VAR: target.name,
        SUBMISSION_ID_VAR: submission_id,
        ATTEMPT_VAR: str(attempt),
    }
    home = target.home_dir
    homes = [other for cluster in clusters if (other := cluster.home_dir)] if home else []
    return RemoteSubmit(
        submission_id=remote_id_for(submission_id, attempt),
        entrypoint=map_paths(spec.entrypoint, homes, home),
        runtime_env=compose(target.runtime_env, spec.runtime_env, identity=identity, overlay=True),
        metadata={
            **spec.metadata,
            ORIGIN: origin,
            JOB: submission_id,
            ATTEMPT: str(attempt),
            **({} if seq is None else {SEQ: str(seq)}),
        },
        entrypoint_num_cpus=spec.entrypoint_num_cpus,
        entrypoint_num_gpus=spec.entrypoint_num_gpus,
        entrypoint_memory=spec.entrypoint_memory,
        entrypoint_resources=spec.entrypoint_resources or None,
        entrypoint_label_selector=spec.entrypoint_label_selector or None,
    )


def is_ours(remote: RemoteJob, job: Job, *, origin: str) -> bool:
    """Tell whether a job on a cluster is an attempt of this job of ours, and not somebody else's."""
    told = remote.metadata
    same_id = (told.get(ORIGIN), told.get(JOB)) == (origin, job.submission_id)
    return same_id and told.get(SEQ) in {None, str(job.seq)}  # None: an older version of ours sent it


def one_of(remote_ids: Collection[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Choose the rows of a cluster's job list that have one of these ids."""
    return lambda row: isinstance(row.get("submission_id"), str) and row["submission_id"] in remote_ids


def has_origin(row: Mapping[str, Any], origin: str) -> bool:
    """Tell whether a row of a cluster's job list is ours."""
    metadata = row.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get(ORIGIN) == origin
