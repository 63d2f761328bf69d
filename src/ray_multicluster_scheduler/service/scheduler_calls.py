"""The calls of the service about clusters, the queue as a whole, and the scheduler itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.placement.inputs import World, cluster_views
from ray_multicluster_scheduler.errors import Forbidden, TooManyRequests
from ray_multicluster_scheduler.model.cluster import TRIAL_S
from ray_multicluster_scheduler.service import arguments
from ray_multicluster_scheduler.service.administration import Administration
from ray_multicluster_scheduler.service.caller import Caller, Role, audit_entry
from ray_multicluster_scheduler.service.make_views import show_cluster, show_leader
from ray_multicluster_scheduler.service.prune import keep_rules, prune
from ray_multicluster_scheduler.service.service_parts import ServiceParts
from ray_multicluster_scheduler.service.show_config import show_config
from ray_multicluster_scheduler.service.views import (
    CallerView,
    ClusterReport,
    ClusterView,
    ConfigView,
    LeaderView,
    ProcessList,
    PruneView,
    WaitView,
)

#: Each holds a thread for minutes, and others need threads too. One for each user.
DOCTORS_AT_ONCE = 4
_doctors_of: set[str] = set()
_doctors = threading.Lock()


class SchedulerCalls:
    """The part of `LocalService` that is not about single jobs."""

    def __init__(self, parts: ServiceParts, caller: Caller) -> None:
        self._parts = parts
        self._store = parts.store
        self._jobs = parts.jobs
        self._caller = caller

    def clusters(self) -> tuple[ClusterView, ...]:
        """Return every configured cluster with what was last seen of it."""
        world = World(
            specs=self._parts.config.clusters,
            snapshots=self._store.load_snapshots(),
            live=LiveJobs(self._store.live()),
            drains=self._store.drained(),
            now=self._parts.clock.now(),
        )
        return tuple(show_cluster(planned, now=world.now) for planned in cluster_views(world))

    def set_drained(self, cluster: str, *, drained: bool, reason: str = "") -> None:
        """Drain a cluster, so that it gets no new jobs, or undo that."""
        self._parts.config.cluster(cluster)
        self._jobs.set_drained(cluster, drained=drained, reason=reason, by=self._caller)

    def wait_reasons(self) -> tuple[WaitView, ...]:
        """Return for each reason how many jobs in the queue wait for it: everybody's, in numbers only."""
        return tuple(
            WaitView(reason=wait.reason, jobs=wait.jobs, oldest=wait.oldest) for wait in self._parts.waits()
        )

    def processes(self) -> ProcessList:
        """Return what runs inside the clusters, ours or not, and which clusters cannot be looked at."""
        self._check_role(Role.READ_ALL)
        return self._parts.processes()

    def run_doctor(
        self, clusters: Sequence[str] | None = None, *, timeout_s: float = TRIAL_S
    ) -> tuple[ClusterReport, ...]:
        """Examine these clusters, or all, also with a short job on each that tells what jobs get there."""
        self._check_role(Role.SUBMIT)
        only = None if clusters is None else arguments.words("clusters", clusters)
        wait_s = arguments.seconds("timeout_s", timeout_s) or TRIAL_S
        for name in only or ():
            self._parts.loaded.cluster(name)
        user = self._caller.user
        with _doctors:
            if user in _doctors_of or len(_doctors_of) >= DOCTORS_AT_ONCE:
                whose = "one of yours is" if user in _doctors_of else f"{DOCTORS_AT_ONCE} are"
                raise TooManyRequests(f"of checks with jobs, {whose} under way; try again in a minute")
            _doctors_of.add(user)
        try:
            entry = audit_entry(self._caller, "doctor", ", ".join(only or ()), now=self._parts.clock.now())
            self._store.access.record([entry])
            return self._parts.run_doctor(only, wait_s)
        finally:
            with _doctors:
                _doctors_of.remove(user)

    def configuration(self) -> ConfigView:
        """Return the configuration as it was loaded, with secrets hidden."""
        self._check_role(Role.READ_ALL)
        return show_config(self._parts.loaded)

    def me(self) -> CallerView:
        """Return who the caller is: whose jobs are submitted, and what that caller may do."""
        return CallerView(user=self._caller.user, role=self._caller.role.word)

    def leader(self) -> LeaderView | None:
        """Return who schedules now, if anybody."""
        return show_leader(self._store.leader(now=self._parts.clock.now()))

    def prune(
        self, *, older_than_s: float | None = None, keep: int | None = None, dry_run: bool = False
    ) -> PruneView:
        """Remove old history by the settings or by these limits; a dry run only counts it."""
        rules = keep_rules(self._parts.config.settings)
        if older_than_s is not None:
            rules = replace(rules, jobs_s=older_than_s)
        if keep is not None:
            rules = replace(rules, jobs=keep)
        now = self._parts.clock.now()
        if not dry_run:
            self._store.access.record([audit_entry(self._caller, "prune", now=now)])
        return prune(self._store, rules, now=now, dry_run=dry_run)

    @property
    def admin(self) -> Administration:
        """Tokens, users and the audit trail; raises `Forbidden` unless the caller is an administrator."""
        settings, clock = self._parts.config.settings, self._parts.clock
        quotas = {user: entry.quota() for user, entry in settings.quotas.items()}
        return Administration(self._parts.tokens, self._store, self._caller, quotas=quotas, clock=clock)

    def _check_role(self, role: Role) -> None:
        if not self._caller.may(role):
            raise Forbidden(
                f"this needs the role {role.word!r}; {self._caller.user!r} has {self._caller.role.word!r}"
            )
