"""`ports.ClusterConnection` to a Ray cluster over HTTP, opened from its entry in clusters.yaml."""

from __future__ import annotations

from collections.abc import Mapping

from ray_multicluster_scheduler.model.cluster import ClusterSpec
from ray_multicluster_scheduler.ray_api.cluster_info import HttpClusterProbe
from ray_multicluster_scheduler.ray_api.http_client import REQUEST_TIMEOUT_S, HttpClient
from ray_multicluster_scheduler.ray_api.jobs_executor import RayJobsExecutor
from ray_multicluster_scheduler.ray_api.package_upload import UPLOAD_TIMEOUT_S, HttpClusterPackages
from ray_multicluster_scheduler.ray_api.state_api import ClusterState


def open_connection(
    spec: ClusterSpec,
    environ: Mapping[str, str],
    *,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    upload_timeout_s: float = UPLOAD_TIMEOUT_S,
) -> HttpConnection:
    """Return the connection to a cluster, with its token from the environment variables in `environ`.

    A missing variable raises no error here, because it must not prevent the use of other clusters. Calls to a
    cluster that needs the token fail with `ClusterAuthFailed`, which names the variable.
    """
    token = environ.get(spec.auth_token_env, "").strip() if spec.auth_token_env else ""
    return HttpConnection(
        spec,
        token=token or None,
        request_timeout_s=request_timeout_s,
        upload_timeout_s=upload_timeout_s,
    )


class HttpConnection:
    """`ports.ClusterConnection` over HTTP. Its parts share one client, which connects with the first call."""

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        token: str | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        upload_timeout_s: float = UPLOAD_TIMEOUT_S,
    ) -> None:
        self._http = HttpClient(spec, token=token, request_timeout_s=request_timeout_s)
        self.probe = HttpClusterProbe(self._http)
        self.executor = RayJobsExecutor(self._http)
        self.packages = HttpClusterPackages(self._http, upload_timeout_s=upload_timeout_s)
        #: Actors, tasks and drivers inside the cluster. Specific to Ray, so not part of the port.
        self.state = ClusterState(self._http)

    def __repr__(self) -> str:
        return f"HttpConnection({self._http.spec.name!r})"

    async def __aenter__(self) -> HttpConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """See `ports.ClusterConnection`."""
        await self._http.close()
