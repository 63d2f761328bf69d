"""The configuration is shown whole, and no secret of it is."""

import json
from pathlib import Path

from ray_multicluster_scheduler.config import parse_config
from ray_multicluster_scheduler.environment.redact import REDACTED
from ray_multicluster_scheduler.service.make_views import show_config

SECRET = "not-for-any-screen"
CONFIG = f"""
clusters:
  a:
    head_address: 127.0.0.1:1
    auth_token_env: TOKEN_OF_A
    runtime_env:
      pip: ["git+https://ann:{SECRET}@example.org/x"]
      env_vars: {{API_KEY: {SECRET}, MODE: fast}}
    max_resources: {{CPU: 8}}
    tags: [gpu]
scheduler:
  store: postgresql://ann:{SECRET}@db:5432/jobs
  store_listen: postgresql://ann@db:5433/jobs?sslmode=require&password={SECRET}
  quotas: {{ann: {{jobs: 3, resources: {{GPU: 1}}}}}}
server:
  allowed_hosts: [ray.example.org]
"""


def test_the_configuration_is_shown_without_its_secrets() -> None:
    shown = show_config(parse_config(CONFIG, Path("clusters.yaml")))

    assert SECRET not in shown.model_dump_json()
    assert shown.path == "clusters.yaml"
    cluster = shown.clusters["a"]
    assert (cluster["auth_token_env"], cluster["tags"]) == ("TOKEN_OF_A", ["gpu"])
    assert cluster["runtime_env"]["env_vars"] == {"API_KEY": REDACTED, "MODE": "fast"}
    assert shown.settings["store"] == f"postgresql://{REDACTED}@db:5432/jobs"
    listen = f"postgresql://ann@db:5433/jobs?sslmode=require&password={REDACTED}"
    assert shown.settings["store_listen"] == listen
    assert shown.settings["quotas"] == {"ann": {"jobs": 3, "resources": {"GPU": 1.0}}}
    assert shown.server["allowed_hosts"] == ["ray.example.org"]


def test_all_that_is_shown_are_plain_values() -> None:
    shown = show_config(parse_config(CONFIG, Path("clusters.yaml")))

    dumped = shown.model_dump()
    assert json.loads(json.dumps(dumped)) == dumped


def test_every_setting_is_shown() -> None:
    config = parse_config(CONFIG, Path("clusters.yaml"))
    shown = show_config(config)

    assert shown.settings.keys() == type(config.settings).model_fields.keys()
    assert shown.server.keys() == type(config.server).model_fields.keys()
