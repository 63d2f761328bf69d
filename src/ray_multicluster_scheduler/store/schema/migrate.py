"""Migrate a store to the schema of this version."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from ray_multicluster_scheduler.store.schema.revision import not_ours

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(connection: Connection, *, revision: str | None) -> None:
    """Run the migrations after `revision` inside the open transaction: all of them or none."""
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    if revision is not None and revision not in known_revisions(config):
        raise not_ours(connection, revision)
    with _quiet_alembic():
        command.upgrade(config, "head")


def known_revisions(config: Config) -> set[str]:
    """Return the revisions that this version knows."""
    return {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}


@contextlib.contextmanager
def _quiet_alembic() -> Iterator[None]:
    """Keep Alembic's steps, which it logs at INFO, out of the log of a program that submits a job."""
    logger = logging.getLogger("alembic")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
