"""The clusters.yaml of a sandbox: with it, `raymc local up` and then any other command just works."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from ray_multicluster_scheduler.local.sandbox_state import Member

_COMMENT = "# Written by `raymc local up`. The clusters are there until `raymc local down`.\n"


def render(members: Iterable[Member]) -> str:
    """Write the configuration of these clusters. Tokens are named by their variable, never written."""
    clusters = {member.spec.name: _entry(member) for member in members}
    return _COMMENT + yaml.safe_dump({"clusters": clusters}, sort_keys=False, allow_unicode=True)


def _entry(member: Member) -> dict[str, Any]:
    spec, head = member.spec, member.head
    entry: dict[str, Any] = {"head_address": head.client_address, "dashboard": head.dashboard}
    if spec.tags:
        entry["tags"] = list(spec.tags)
    if spec.token_variable:
        entry["auth_token_env"] = spec.token_variable
    if spec.runtime_env:
        entry["runtime_env"] = dict(spec.runtime_env)
    return entry
