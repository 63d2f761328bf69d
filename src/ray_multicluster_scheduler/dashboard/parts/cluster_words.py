"""Labels, configuration and changes of clusters as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import yaml

from ray_multicluster_scheduler.config.change import ConfigChange
from ray_multicluster_scheduler.dashboard.page import Page

#: Ray gives each node a label of its own name, which says nothing to people.
_OWN_LABEL = "ray.io/node-id"


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
