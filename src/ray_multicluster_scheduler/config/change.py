"""The difference between two configurations, for a user who has changed the file."""

from __future__ import annotations

from dataclasses import dataclass

from ray_multicluster_scheduler.config.load import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """Names of clusters and settings, without values: those may be secrets."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    settings: tuple[str, ...]

    def __str__(self) -> str:
        parts = [
            f"{label}: {', '.join(names)}"
            for label, names in (
                ("added", self.added),
                ("changed", self.changed),
                ("removed", self.removed),
                ("settings", self.settings),
            )
            if names
        ]
        return "; ".join(parts) or "nothing has changed"


def config_change(old: Config, new: Config) -> ConfigChange:
    """Return which clusters were added, changed and removed, and which settings have another value."""
    before = {spec.name: spec for spec in old.clusters}
    after = {spec.name: spec for spec in new.clusters}
    return ConfigChange(
        added=tuple(name for name in after if name not in before),
        changed=tuple(name for name, spec in after.items() if name in before and before[name] != spec),
        removed=tuple(name for name in before if name not in after),
        settings=tuple(
            name
            for name in type(new.settings).model_fields
            if getattr(old.settings, name) != getattr(new.settings, name)
        ),
    )
