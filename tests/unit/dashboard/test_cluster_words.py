"""Labels, configuration and addresses of clusters as text."""

from __future__ import annotations

import pytest
import yaml

from ray_multicluster_scheduler.dashboard.cluster_view import as_yaml, labels_text, web_address


def test_labels_are_in_one_order() -> None:
    assert labels_text({"zone": "b", "ray.io/node-id": "5f3", "kind": "a"}) == "kind=a · zone=b"


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "10.0.0.1:8265", ""])
def test_only_addresses_of_the_web_become_links(address: str) -> None:
    assert web_address(address) is None
    assert web_address("https://ray.example:8265/") == "https://ray.example:8265/"


def test_configuration_is_shown_as_the_file_has_it() -> None:
    loaded = {"tags": ["a"], "runtime_env": {"env_vars": {"KEY": "<redacted>"}}, "weight": 1.0}
    assert yaml.safe_load(as_yaml(loaded)) == loaded
    assert as_yaml(loaded).startswith("tags:")
