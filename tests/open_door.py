"""The server's door before an application of a test: callers are who they say they are."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from ray_multicluster_scheduler.config.schema import ServerSettings
from ray_multicluster_scheduler.server.allow_list import AllowList
from ray_multicluster_scheduler.server.http_metrics import HttpMetrics
from ray_multicluster_scheduler.server.limits import Limits
from ray_multicluster_scheduler.service.caller import Caller

ANYBODY = Caller(user="anybody")


class Trusting:
    """Knows callers by what they show, which is their name."""

    def __init__(self, callers: Mapping[str, Caller]) -> None:
        self._callers = callers

    async def of(self, shown: str, _address: str | None) -> Caller:
        return self._callers[shown]


def open_door(*callers: Caller, nobody: Caller = ANYBODY, **options: Any) -> dict[str, Any]:
    """Return the options of a `Door` for these callers; `nobody`: who shows nothing."""
    return {
        "callers": Trusting({"": nobody, **{caller.user: caller for caller in callers}}),
        "allow_list": AllowList(bind="127.0.0.1", hosts=(), origins=()),
        "limits": Limits(ServerSettings()),
        "metrics": HttpMetrics(CollectorRegistry()),
        **options,
    }
