"""A setting that nobody reads is a promise that nobody keeps."""

import ast
from pathlib import Path

import ray_multicluster_scheduler
from ray_multicluster_scheduler.config.schema import ClusterEntry, ServerSettings, Settings

SRC = Path(ray_multicluster_scheduler.__file__).parent


def read_names() -> set[str]:
    """The attributes that are read anywhere but in the configuration itself."""
    files = [path for path in SRC.rglob("*.py") if path.relative_to(SRC).parts[0] != "config"]
    return {
        node.attr
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_every_setting_is_read_by_something() -> None:
    assert {
        *Settings.model_fields,
        *ClusterEntry.model_fields,
        *ServerSettings.model_fields,
    } - read_names() == set()
