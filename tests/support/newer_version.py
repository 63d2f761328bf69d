"""Run as a program: a scheduler of a newer version, whose schema has one more revision.

python newer_version.py FOLDER CONFIG

It brings the store to its schema, leads when it can, waits until all jobs have ended, and writes their ends.
"""

import json
import shutil
import sys
import time
from pathlib import Path

from ray_multicluster_scheduler.embedded import EmbeddedScheduler
from ray_multicluster_scheduler.model.states import FINAL
from ray_multicluster_scheduler.store.postgres import opening as postgres_opening
from ray_multicluster_scheduler.store.schema import revision, tables
from ray_multicluster_scheduler.store.sqlite import opening as sqlite_opening

NEWER = "r9999_pre"
#: They know the revision of this version.
KNOW_IT = (tables, revision, sqlite_opening, postgres_opening)
MIGRATION = f'''
import sqlalchemy as sa
from alembic import op

revision = "{NEWER}"
down_revision = "{tables.REVISION}"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("colour", sa.Text(), nullable=False, server_default="green"))
'''


def newer_migrations(folder: Path) -> Path:
    """Return a copy of the migrations with one more."""
    migrations = folder / "migrations"
    shutil.copytree(revision.MIGRATIONS, migrations)
    (migrations / "versions" / "r9999_pre_colour.py").write_text(MIGRATION)
    return migrations


def become_newer(folder: Path) -> None:
    """Let this process have one more migration than the package has."""
    revision.MIGRATIONS = newer_migrations(folder)
    for module in KNOW_IT:
        vars(module)["REVISION"] = NEWER


def main(folder: Path, config: Path) -> None:
    become_newer(folder)
    scheduler = EmbeddedScheduler.open(config)
    scheduler.start()
    store, mark = scheduler.store, 0
    store.jobs.add([("of-the-newer", store.jobs.list()[0].spec)], now=time.time())
    while any(job.state not in FINAL for job in store.jobs.list()):
        scheduler.ensure_scheduled()
        mark = store.changes.wait(mark, timeout_s=1.0)
    print(json.dumps({job.submission_id: job.state.value for job in store.jobs.list()}))
    scheduler.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
