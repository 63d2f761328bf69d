"""What clusters.yaml may say: one line per key, with its type, default, bounds and meaning.

The reference tables of the documentation are checked against these descriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ray_multicluster_scheduler.config import fields
from ray_multicluster_scheduler.config.find import expanded, server_url
from ray_multicluster_scheduler.model.access import Quota
from ray_multicluster_scheduler.model.cluster import ClusterSpec


class _Section(BaseModel):
    """Unknown keys are refused, and nothing is converted in silence: `"yes"` is not true."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _an_empty_value_is_left_out(cls, value: Any) -> Any:
        """Read `tags:` with nothing behind it as no `tags` at all."""
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if item is not None}
        return value


class QuotaEntry(_Section):
    """One entry under `quotas:`; what is left out is not limited."""

    jobs: int | None = Field(None, ge=0, le=10**9, description="Jobs that have not ended.")
    resources: Annotated[dict[str, Any], AfterValidator(fields.quota_resources)] = Field(
        {}, description="What these claim together; `memory` in GiB."
    )

    def quota(self) -> Quota:
        """Return the record that the rest of the package works with."""
        return Quota(jobs=self.jobs, resources=self.resources)


class Settings(_Section):
    """The `scheduler:` section: how clusters are watched and called, and how jobs are placed and retried."""

    address: Annotated[str, AfterValidator(server_url)] | None = Field(
        None, description="URL of a `raymc serve` that schedules instead of this process."
    )
    store: str | None = Field(
        None,
        description=(
            "Where jobs are kept: a directory, or `postgresql://user@host:5432/database` for several "
            "servers; by default a directory for each file. `RAY_MULTICLUSTER_STORE` overrules it."
        ),
    )
    store_password_file: str | None = Field(
        None, description="A file with the password of the PostgreSQL user, so that it stands nowhere else."
    )
    store_listen: str | None = Field(
        None,
        description="The address of the PostgreSQL server itself, if `store` is that of a pooler.",
    )
    probe_interval_s: float = Field(
        5.0, ge=0.1, le=3600, description="Pause between two probes of a cluster."
    )
    probe_timeout_s: float = Field(5.0, ge=0.1, le=600, description="A probe that takes longer has failed.")
    request_timeout_s: float = Field(
        10.0, ge=0.1, le=600, description="A call to a cluster that takes longer has failed."
    )
    upload_timeout_s: float = Field(
        300.0, ge=1, le=86400, description="Sending one package to a cluster may take this long."
    )
    packages: Annotated[str, AfterValidator(fields.packages_place)] | None = Field(
        None,
        description=(
            "Where schedulers on several machines share the packages of jobs: `database`, or a URL such as "
            "`s3://bucket/packages`. Without it, they are in the database if that is PostgreSQL; otherwise "
            "they stay on the machine that has packed or received them."
        ),
    )
    breaker_failures: int = Field(
        3, ge=1, le=100, description="After this many failed probes in a row a cluster is probed less often."
    )
    breaker_max_delay_s: float = Field(
        60.0, ge=1, le=3600, description="A failing cluster is probed at least this often."
    )
    poll_interval_s: float = Field(
        1.0, ge=0.05, le=600, description="Pause between two looks at the jobs that run on a cluster."
    )
    max_starts_in_flight: int = Field(
        16,
        ge=1,
        le=1000,
        description="Jobs of one cluster that may be starting at once at most; how many of them is learnt.",
    )
    starvation_after_s: float = Field(
        3600.0,
        ge=0,
        le=2_592_000,
        description="A job that has waited longer is not overtaken by smaller ones any more.",
    )
    max_infra_retries: int = Field(
        3, ge=0, le=1000, description="New attempts after failures that are not the program's own."
    )
    retry_delay_s: float = Field(
        2.0, ge=0, le=3600, description="Wait before the first new attempt; it doubles with each further one."
    )
    retry_max_delay_s: float = Field(
        120.0, ge=0, le=86400, description="The wait before a new attempt grows no longer than this."
    )
    replacement_rate: float = Field(
        10.0,
        ge=0.01,
        le=10_000,
        description="Jobs of dead clusters that are started anew per second, over all clusters.",
    )
    unreachable_after_s: float = Field(
        20.0, ge=1, le=86400, description="A cluster that is silent for longer makes its jobs UNREACHABLE."
    )
    lost_after_refused_s: float = Field(
        90.0,
        ge=1,
        le=86400,
        description="Jobs of a cluster that refuses connections for longer are lost.",
    )
    lease_ttl_s: float = Field(
        10.0,
        ge=1,
        le=600,
        description="Another scheduler takes over when the leader has not been heard of for this long.",
    )
    background: bool = Field(
        default=True,
        description=(
            "Programs and commands start a scheduler in the background if none runs. With false, nothing "
            "starts jobs until `raymc scheduler run` or `raymc serve` runs. `RAY_MULTICLUSTER_BACKGROUND=0` "
            "overrules it."
        ),
    )
    linger_s: float = Field(
        60.0,
        ge=0,
        le=86400,
        description="The background scheduler ends when no job has been open for this long.",
    )
    keep_env: list[str] = Field(
        [],
        description=(
            "Environment variables, such as `AWS_*`, that the background scheduler keeps of the program that "
            "starts it, beside those that it always keeps."
        ),
    )
    keep_jobs_days: float = Field(
        90.0, ge=0.01, le=36500, description="Jobs that ended longer ago are removed, with all about them."
    )
    keep_jobs: int = Field(
        250_000,
        ge=1,
        le=10**9,
        description=(
            "Of the jobs that have ended, so many are kept: the newest of each user. "
            "Above it, those who have the most lose some."
        ),
    )
    keep_logs_days: float = Field(
        30.0, ge=0, le=36500, description="Kept logs of jobs that ended longer ago are removed."
    )
    keep_secrets_days: float = Field(
        3.0, ge=0, le=36500, description="Secrets of jobs that ended longer ago are removed from the store."
    )
    keep_audit_days: float = Field(
        365.0, ge=0.01, le=36500, description="Entries of the audit trail that are older are removed."
    )
    keep_store_mib: int = Field(
        900,
        ge=16,
        le=10**7,
        description=(
            "A store that holds more loses logs, then ended jobs, of the users who take the most, "
            "oldest first. Not on PostgreSQL, whose size is its administrator's."
        ),
    )
    ended_jobs_on_cluster: int = Field(
        200,
        ge=0,
        le=1_000_000_000,
        description=(
            "Ended jobs of ours that each cluster goes on listing; older ones are deleted there, "
            "once their result and log are kept here."
        ),
    )
    quotas: dict[str, QuotaEntry] = Field(
        {},
        description=(
            'What one user may have at once, by user, and under `"*"` for everybody else: '
            "`jobs` that have not ended, and `resources` that these claim together."
        ),
    )
    log_keep_bytes: int = Field(
        1048576, ge=0, le=2**30, description="The end of each job's log of which we keep a copy."
    )


class ServerSettings(_Section):
    """The `server:` section: what `raymc serve` lets in."""

    allowed_hosts: list[str] = Field(
        [],
        description=(
            "Names beside its own by which clients reach the server, such as a proxy's; `*.example.org` "
            "for all below one."
        ),
    )
    allowed_origins: list[Annotated[str, AfterValidator(fields.origin)]] = Field(
        [],
        description="Pages elsewhere that may call the server from a browser, such as `https://ui.example.org`.",
    )
    changes_per_second: float = Field(
        500.0,
        gt=0,
        le=10**6,
        description="Submits, stops and other changes of one user; ten seconds' worth at once.",
    )
    lists_per_second: float = Field(
        100.0, gt=0, le=10**6, description="Lists and searches of one user; ten seconds' worth at once."
    )
    logs_per_second: float = Field(
        100.0, gt=0, le=10**6, description="Logs that one user opens; ten seconds' worth at once."
    )
    open_requests_per_user: int = Field(
        5000, ge=1, le=10**6, description="Requests, streams and websockets that one user has open at once."
    )


class ClusterEntry(_Section):
    """One entry under `clusters:`."""

    head_address: Annotated[str, AfterValidator(fields.head_address)] = Field(
        description="Where Ray Client listens, as `host:port`; without a port, 10001."
    )
    dashboard: Annotated[str, AfterValidator(fields.dashboard)] | None = Field(
        None, description="URL of Ray's dashboard, where jobs are sent and resources are read."
    )
    runtime_env: Annotated[dict[str, Any], AfterValidator(fields.runtime_env)] = Field(
        {}, description="The environment that every job on this cluster gets; a job can add to it."
    )
    prefer: bool = Field(default=False, description="Choose this cluster first while it has room.")
    weight: float = Field(1.0, gt=0, description="Take this cluster more (above 1) or less (below 1) often.")
    tags: list[Annotated[str, AfterValidator(fields.tag)]] = Field(
        [], description="Words that say what the cluster is good for; jobs with the same tags prefer it."
    )
    max_running_jobs: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None,
        description="Jobs that may run at once; each costs the head a process and about 85 MB. "
        "Without it, as many as the head has memory for.",
    )
    max_resources: Annotated[dict[str, Any], AfterValidator(fields.resources)] | None = Field(
        None, description="What an autoscaling cluster can grow to; `memory` in GiB."
    )
    auth_token_env: Annotated[str, AfterValidator(fields.variable_name)] | None = Field(
        None, description="Name of the environment variable that holds the cluster's token."
    )
    tls_ca: str | None = Field(
        None, description="File with the CA certificate of an https dashboard, relative to this file."
    )
    drained: bool = Field(default=False, description="Send no new work here; what runs may end.")
    ship_package: bool = Field(
        default=True,
        description="Send this package with every job, before any other of its name on the job's path; "
        "with false, programs that import it need it in their environment.",
    )

    @model_validator(mode="after")
    def _a_ca_needs_tls(self) -> ClusterEntry:
        if self.tls_ca and not (self.dashboard or "").startswith("https://"):
            raise ValueError("`tls_ca` is of no use without `dashboard: https://...`")
        return self

    def spec(self, name: str, folder: Path) -> ClusterSpec:
        """Return the record that the rest of the package works with; `folder` is where the file lies."""
        return ClusterSpec(
            name=name,
            head_address=self.head_address,
            dashboard=self.dashboard or fields.default_dashboard(self.head_address),
            runtime_env=self.runtime_env,
            prefer=self.prefer,
            weight=self.weight,
            tags=tuple(dict.fromkeys(self.tags)),
            max_running_jobs=self.max_running_jobs,
            max_resources=self.max_resources,
            auth_token_env=self.auth_token_env,
            tls_ca=str(folder / expanded(self.tls_ca)) if self.tls_ca else None,
            drained=self.drained,
            ship_package=self.ship_package,
        )
