"""What a server is asked about clusters, its queue as a whole, and itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ray_multicluster_scheduler.client.http_administration import ServerAdministration
from ray_multicluster_scheduler.client.http_calls import get, post
from ray_multicluster_scheduler.client.http_responses import parsed
from ray_multicluster_scheduler.client.server_address import ServerAddress
from ray_multicluster_scheduler.client.transport import ANSWER_TIMEOUT_S, Call, Transport, part
from ray_multicluster_scheduler.model.cluster import TRIAL_S
from ray_multicluster_scheduler.service import arguments
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

T = TypeVar("T")


class HttpSchedulerCalls:
    """The part of `HttpService` that is not about single jobs."""

    def __init__(self, server: ServerAddress) -> None:
        self.server = server
        self._transport = Transport(server)

    @property
    def admin(self) -> ServerAdministration:
        """Tokens, users and the audit trail; the server refuses callers that are no administrators."""
        return ServerAdministration(self.server, self._transport)

    def clusters(self) -> tuple[ClusterView, ...]:
        """Return every configured cluster with what was last seen of it."""
        return self._ask(_clusters, get("/clusters"))

    def set_drained(self, cluster: str, *, drained: bool, reason: str = "") -> None:
        """Drain a cluster, so that it gets no new jobs, or undo that."""
        name = part(arguments.text("cluster", cluster))
        why = arguments.text("reason", reason, empty=True)
        self._transport.ask(post(f"/clusters/{name}/{'drain' if drained else 'undrain'}", {"reason": why}))

    def wait_reasons(self) -> tuple[WaitView, ...]:
        """Return for each reason how many jobs in the queue wait for it: everybody's, in numbers only."""
        return self._ask(_waits, get("/wait-reasons"))

    def processes(self) -> ProcessList:
        """Return what runs inside the clusters, ours or not, and which clusters cannot be looked at."""
        return self._ask(ProcessList.model_validate, get("/processes"))

    def run_doctor(
        self, clusters: Sequence[str] | None = None, *, timeout_s: float = TRIAL_S
    ) -> tuple[ClusterReport, ...]:
        """Examine these clusters, or all, also with a short job on each that tells what jobs get there."""
        call = post("/doctor", {"clusters": clusters, "timeout_s": timeout_s}, repeatable=False)
        return self._ask(_reports, replace(call, answer_s=timeout_s + ANSWER_TIMEOUT_S))

    def configuration(self) -> ConfigView:
        """Return the configuration as the server has loaded it, with secrets hidden."""
        return self._ask(ConfigView.model_validate, get("/config"))

    def me(self) -> CallerView:
        """Return who the caller is: whose jobs are submitted, and what that caller may do."""
        return self._ask(CallerView.model_validate, get("/me"))

    def leader(self) -> LeaderView | None:
        """Return who schedules now, if anybody."""
        return self._ask(_leader, get("/leader"))

    def prune(
        self, *, older_than_s: float | None = None, keep: int | None = None, dry_run: bool = False
    ) -> PruneView:
        """Remove old history by the settings or by these limits; a dry run only counts it."""
        asked = {"older_than_s": older_than_s, "keep": keep, "dry_run": dry_run}
        return self._ask(PruneView.model_validate, post("/prune", asked))

    def reload_config(self) -> dict[str, list[str]]:
        """Let the server read its clusters.yaml again; returns the names of what has changed."""
        return self._ask(dict, post("/config/reload", {}))

    def _ask(self, parse: Callable[[Any], T], call: Call) -> T:
        return parsed(self.server, parse, self._transport.ask(call))


def _clusters(answer: Mapping[str, Any]) -> tuple[ClusterView, ...]:
    return tuple(map(ClusterView.model_validate, answer["clusters"]))


def _reports(answer: Mapping[str, Any]) -> tuple[ClusterReport, ...]:
    return tuple(map(ClusterReport.model_validate, answer["clusters"]))


def _waits(answer: Mapping[str, Any]) -> tuple[WaitView, ...]:
    return tuple(map(WaitView.model_validate, answer["waits"]))


def _leader(answer: Mapping[str, Any] | None) -> LeaderView | None:
    return None if answer is None else LeaderView.model_validate(answer)
