"""The configuration, for operators: as it was loaded, without secrets."""

from __future__ import annotations

from dataclasses import asdict

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.environment.redact import redact_env
from ray_multicluster_scheduler.service.views import ConfigView


def show_config(config: Config) -> ConfigView:
    """Show a configuration. Of a token it has only the name of the variable that holds it."""
    clusters = {}
    for spec in config.clusters:
        fields = asdict(spec)
        del fields["name"]
        # The outer call hides users and passwords in the addresses; variables are below `runtime_env` only.
        clusters[spec.name] = redact_env({**fields, "runtime_env": redact_env(spec.runtime_env)})
    return ConfigView(
        path=str(config.path),
        clusters=clusters,
        settings=redact_env(config.settings.model_dump(mode="json")),
        server=redact_env(config.server.model_dump(mode="json")),
    )
