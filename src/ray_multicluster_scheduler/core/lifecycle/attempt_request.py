"""The request that starts an attempt: a pure function of the cluster's configuration and the job."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ray_multicluster_scheduler.environment.compose import compose
from ray_multicluster_scheduler.environment.options import (
    ATTEMPT_VAR,
    CLUSTER_VAR,
    OLDER_CLUSTER_VAR,
    SUBMISSION_ID_VAR,
)
from ray_multicluster_scheduler.environment.paths import map_paths
from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.model.execution import InventoryRow, Sighting, StartRequest
from ray_multicluster_scheduler.model.job import DEFAULT_CLAIM, Job, JobSpec, remote_id_for
from ray_multicluster_scheduler.model.resources import MOST, Resources, is_resource_name

ORIGIN = "raymc.origin"
JOB = "raymc.job"
ATTEMPT = "raymc.attempt"
#: Of a session: whose it is. (The user of a job is in our own records only.)
USER = "raymc.user"
#: Distinguishes a job from an earlier one with the same id that was deleted here but not on the cluster.
SEQ = "raymc.seq"
#: What the job claims, as JSON: any scheduler that uses the same cluster counts it (core/live_jobs.py).
CLAIM = "raymc.claim"
#: A longer claim is neither written nor read.
MOST_CLAIM_CHARS = 4_000


def compose_submit(
    submission_id: str,
    spec: JobSpec,
    attempt: int,
    target: ClusterSpec,
    clusters: Sequence[ClusterSpec],
    *,
    origin: str,
    seq: int | None = None,
) -> StartRequest:
    """Compose the request for one attempt on one cluster, or raise `InvalidRuntimeEnv`.

    The only input from other clusters is their `home_dir`, from which paths are mapped.
    """
    identity = {
        CLUSTER_VAR: target.name,
        OLDER_CLUSTER_VAR: target.name,
        SUBMISSION_ID_VAR: submission_id,
        ATTEMPT_VAR: str(attempt),
    }
    home = target.home_dir
    homes = [other for cluster in clusters if (other := cluster.home_dir)] if home else []
    return StartRequest(
        remote_id=remote_id_for(submission_id, attempt),
        entrypoint=map_paths(spec.entrypoint, homes, home),
        runtime_env=compose(target.runtime_env, spec.runtime_env, identity=identity, overlay=True),
        metadata={
            **spec.metadata,
            ORIGIN: origin,
            JOB: submission_id,
            ATTEMPT: str(attempt),
            CLAIM: claim_text(spec.claim),
            **({} if seq is None else {SEQ: str(seq)}),
        },
        entrypoint_num_cpus=spec.entrypoint_num_cpus,
        entrypoint_num_gpus=spec.entrypoint_num_gpus,
        entrypoint_memory=spec.entrypoint_memory,
        entrypoint_resources=spec.entrypoint_resources or None,
        entrypoint_label_selector=spec.entrypoint_label_selector or None,
    )


def is_ours(sighting: Sighting, job: Job, *, origin: str) -> bool:
    """Tell whether an attempt on a cluster belongs to this job, and not to another scheduler or user."""
    told = sighting.metadata
    same_id = (told.get(ORIGIN), told.get(JOB)) == (origin, job.submission_id)
    return same_id and told.get(SEQ) in {None, str(job.seq)}  # None: an older version of ours sent it


def has_origin(row: InventoryRow, origin: str) -> bool:
    """Tell whether an entry of a cluster's list has our origin."""
    return bool(row.metadata.get(ORIGIN) == origin)


def claim_text(claim: Resources) -> str:
    """Write a claim for the metadata of a job."""
    text = json.dumps(claim, separators=(",", ":"), sort_keys=True)
    if len(text) <= MOST_CLAIM_CHARS:
        return text
    return claim_text({name: claim[name] for name in ("CPU", "GPU", "memory") if name in claim})


def claim_of(row: InventoryRow) -> Resources:
    """Return what a job of a scheduler claims; the default if it does not say so, or not in a way to believe.

    Metadata may hold anything: whoever may use the cluster writes it.
    """
    text = row.metadata.get(CLAIM)
    if not isinstance(text, str) or len(text) > MOST_CLAIM_CHARS:
        return DEFAULT_CLAIM
    try:
        claim = json.loads(text)
    except (ValueError, RecursionError):
        return DEFAULT_CLAIM
    if not isinstance(claim, dict) or not all(map(is_resource_name, claim)):
        return DEFAULT_CLAIM
    if not all(type(amount) in {int, float} and 0 <= amount < MOST for amount in claim.values()):
        return DEFAULT_CLAIM
    return {name: float(amount) for name, amount in claim.items() if amount}
