"""The configuration, for operators: as it was loaded, without secrets."""

from __future__ import annotations

import re
from dataclasses import asdict

from ray_multicluster_scheduler.config import Config
from ray_multicluster_scheduler.environment.redact import REDACTED, redact_env
from ray_multicluster_scheduler.service.views import ConfigView

#: As a part of the query of a PostgreSQL address.
_PASSWORD = re.compile(r"(?<=password=)[^&]+", re.IGNORECASE)


def show_config(config: Config) -> ConfigView:
    """Show a configuration. Of a token it has only the name of the variable that holds it."""
    clusters = {}
    for spec in config.clusters:
        fields = asdict(spec)
        del fields["name"]
        # The outer call hides users and passwords in the addresses; variables are below `runtime_env` only.
        clusters[spec.name] = redact_env({**fields, "runtime_env": redact_env(spec.runtime_env)})
    # A store is opened only without a password in its address, but the environment may name another one.
    settings = {
        name: _PASSWORD.sub(REDACTED, value) if isinstance(value, str) else value
        for name, value in config.settings.model_dump(mode="json").items()
    }
    return ConfigView(
        path=str(config.path),
        clusters=clusters,
        settings=redact_env(settings),
        server=redact_env(config.server.model_dump(mode="json")),
    )
