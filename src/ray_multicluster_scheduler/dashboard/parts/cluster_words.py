"""Resources, configuration and changes of clusters as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from ray_multicluster_scheduler.config.change import ConfigChange
from ray_multicluster_scheduler.dashboard.page import Page

_GIB = 2**30
#: Ray counts these in bytes; with the words for them.
_IN_BYTES = {"memory": "memory", "object_store_memory": "object store"}
#: Ray gives each node a resource and a label of its own name, which say nothing to people.
_OWN_RESOURCE, _OWN_LABEL = "node:", "ray.io/node-id"


def resources_text(resources: Mapping[str, float]) -> str:
    """Return resources in one line: CPU and GPU first, memory in GiB."""
    order = ("CPU", "GPU", "memory")
    names = sorted(resources, key=lambda name: (order.index(name) if name in order else len(order), name))
    return " · ".join(_amount(name, resources[name]) for name in names if not name.startswith(_OWN_RESOURCE))


def _amount(name: str, value: float) -> str:
    return f"{value / _GIB:.1f} GiB {_IN_BYTES[name]}" if name in _IN_BYTES else f"{value:g} {name}"


def labels_text(labels: Mapping[str, str]) -> str:
    """Return the labels of a node in one line."""
    return " · ".join(f"{name}={value}" for name, value in sorted(labels.items()) if name != _OWN_LABEL)


def web_address(address: str) -> str | None:
    """Return an address that may become a link; None: it is none for a browser, such as `javascript:`."""
    return address if urlsplit(address).scheme in ("http", "https") else None


def as_yaml(value: Mapping[str, Any]) -> str:
    """Return a part of the configuration as it could stand in the file."""
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, default_flow_style=False)


def change_text(page: Page, change: ConfigChange) -> str:
    """Say what a new configuration has changed."""
    parts = (
        ("clusters.added", change.added),
        ("clusters.changed", change.changed),
        ("clusters.removed", change.removed),
        ("clusters.changed_settings", change.settings),
    )
    texts = [page.t(key, names=", ".join(names)) for key, names in parts if names]
    return page.t("clusters.reloaded", changes=" ".join(texts) or page.t("clusters.same"))
