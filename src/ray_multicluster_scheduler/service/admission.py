"""Refuse jobs that no cluster could ever run, before they are stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.core.live_jobs import LiveJobs
from ray_multicluster_scheduler.core.placement.capacity import Room, open_room
from ray_multicluster_scheduler.core.placement.impossible import never_fits
from ray_multicluster_scheduler.core.placement.inputs import Fits, World, cluster_views, env_key, unworkable
from ray_multicluster_scheduler.environment.ray_needs import ray_needs
from ray_multicluster_scheduler.errors import InvalidRuntimeEnv, NeverFits
from ray_multicluster_scheduler.model.cluster import ClusterSpec, Health
from ray_multicluster_scheduler.model.decision import ClusterView
from ray_multicluster_scheduler.model.job import JobSpec
from ray_multicluster_scheduler.model.resources import Resources
from ray_multicluster_scheduler.ports import Clock
from ray_multicluster_scheduler.store_ports import JobStore

#: Poll interval for the first snapshots after the start: writing a snapshot sends no notification.
FIRST_LOOK_S = 0.05
#: How many kinds of jobs are cached, each with a cluster that can run it.
MOST_KINDS = 1000

#: How long a cached cluster is trusted without a new check: less than the interval between two snapshots.
SURE_FOR_S = 0.5

#: What a job claims, and what has to be set up for it.
_Kind = tuple[frozenset[tuple[str, float]], str]


class Admission:
    """Checks each kind of job against all clusters once, then only against the one that could run it."""

    def __init__(self, config: Config, store: JobStore, clock: Clock, fits: Fits) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._fits = fits
        #: For each kind: a cluster that could run it, and until when that is trusted.
        self._could: dict[_Kind, tuple[ClusterSpec, float]] = {}

    def check(self, specs: Sequence[JobSpec]) -> None:
        """Raise `NeverFits` or `InvalidRuntimeEnv` for a job that no cluster could ever take."""
        kinds = {_kind(spec): spec for spec in specs}  # all jobs of an array are one kind
        doubtful = {kind: spec for kind, spec in kinds.items() if not self._still_can(kind, spec)}
        if not doubtful:
            return
        views = self._ask_all(list(doubtful.values()))
        for kind, spec in doubtful.items():
            could = next((view.spec for view in views if self._could_take(spec, view)), None)
            if could is not None:
                if len(self._could) >= MOST_KINDS:
                    self._could.clear()
                self._could[kind] = could, self._clock.monotonic() + SURE_FOR_S

    def _still_can(self, kind: _Kind, spec: JobSpec) -> bool:
        cluster, until = self._could.get(kind, (None, 0.0))
        _, environment = kind  # an environment may have failed just now, so it is always checked
        if cluster is None or (not environment and self._clock.monotonic() < until):
            return cluster is not None
        if not self._could_take(spec, self._views([cluster])[0]):
            return False
        self._could[kind] = cluster, self._clock.monotonic() + SURE_FOR_S
        return True

    def _could_take(self, spec: JobSpec, view: ClusterView) -> bool:
        """Tell whether a cluster is known to be large enough for a job, and can set up its environment."""
        unfit = any(name == view.spec.name for name, _ in self._fits.unfit(spec))
        return not unfit and _known_to_fit(spec.claim, [open_room(view)]) and not unworkable(spec, [view])

    def _ask_all(self, specs: Sequence[JobSpec]) -> tuple[ClusterView, ...]:
        """Check the jobs against all clusters, and return the view of the clusters that passed.

        Waits a moment for cluster sizes and versions that are not known yet.
        """
        ends_at = self._clock.monotonic() + self._config.settings.probe_timeout_s
        claims: Collection[Resources] = [spec.claim for spec in specs]
        asks_for_ray = any(ray_needs(spec.runtime_env) for spec in specs)
        mark = 0
        while True:
            views = self._views(self._config.clusters)
            for claim in claims:
                if reason := never_fits(claim, views):
                    raise NeverFits(f"no cluster could ever hold this job: it {reason}")
            rooms = [open_room(view) for view in views]
            claims = [claim for claim in claims if not _known_to_fit(claim, rooms)]
            left = ends_at - self._clock.monotonic()
            unseen = asks_for_ray and any(view.snapshot.health is Health.UNKNOWN for view in views)
            if left <= 0 or not (claims or unseen):
                _refuse_unworkable(specs, views)
                return views
            mark = self._store.wait_for_change(mark, timeout_s=min(left, FIRST_LOOK_S))

    def _views(self, clusters: Sequence[ClusterSpec]) -> tuple[ClusterView, ...]:
        names = None if clusters is self._config.clusters else [spec.name for spec in clusters]
        seen = self._store.load_snapshots(names)
        return cluster_views(World(specs=clusters, snapshots=seen, live=LiveJobs(), now=self._clock.now()))


def _kind(spec: JobSpec) -> _Kind:
    return frozenset(spec.claim.items()), env_key(spec)


def _known_to_fit(claim: Resources, rooms: Iterable[Room]) -> bool:
    return any(not room.unknown(claim) and not room.beyond(claim) for room in rooms)


def _refuse_unworkable(specs: Iterable[JobSpec], views: Sequence[ClusterView]) -> None:
    """Refuse an environment that no cluster can set up: its Ray is too old, or the setup failed lately."""
    for spec in specs:
        if reasons := unworkable(spec, views):
            raise InvalidRuntimeEnv(
                "no cluster can take this environment:\n"
                + "\n".join(f"cluster {name!r}: {why}" for name, why in reasons.items())
            )
